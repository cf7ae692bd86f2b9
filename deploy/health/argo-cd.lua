-- The health of a DaemonSet for Argo CD: resource.customizations.health.apps_DaemonSet in the ConfigMap argocd-cm.
-- With a rollout policy of gitops-ds the annotation gitops-ds.io/phase counts; else this is Argo CD's own rule.
local annotations = obj.metadata.annotations or {}
local phase = annotations["gitops-ds.io/phase"]
local spec = obj.spec or {}
local status = obj.status or {}
local strategy = (spec.updateStrategy or {}).type or "RollingUpdate"
local desired = status.desiredNumberScheduled or 0
local updated = status.updatedNumberScheduled or 0
local available = status.numberAvailable or 0

if phase == "Halted" then
  return {status = "Degraded", message = "the staged rollout is halted"}
end
if phase == "Progressing" then
  return {status = "Progressing", message = "a staged rollout is in progress"}
end
if (status.observedGeneration or 0) < (obj.metadata.generation or 0) then
  return {status = "Progressing", message = "the new specification was not observed yet"}
end
if phase == nil and strategy == "OnDelete" then
  return {status = "Healthy", message = "OnDelete: pods are updated when they are deleted"}
end
if strategy == "RollingUpdate" and updated < desired then
  return {status = "Progressing", message = updated .. " of " .. desired .. " pods are updated"}
end
if available < desired then
  return {status = "Progressing", message = available .. " of " .. desired .. " pods are available"}
end
return {status = "Healthy", message = "all " .. desired .. " pods are available"}
