"""The strategies of the API server for writes of each kind: separate status, generations, fields
that only it writes; for deletions grace periods, finalizers, propagation, responses.

Those of pkg/registry in Kubernetes, for the kinds around DaemonSets; other kinds have the common
rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.cluster import Propagation
from gitops_ds.core.objects import DAEMONSET, NAMESPACE, NODE, POD, Body, Resource
from gitops_ds.kube.apimachinery import defaults, timestamps

CRD = Resource(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
)

# Groups and kinds with a generation (from a real 1.37 API server, kind by kind); custom kinds have
# one too.
_COUNTED_GROUPS = {
    "apps",
    "batch",
    "policy",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
}
_COUNTED_KINDS = {
    ("", "Pod"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "NetworkPolicy"),
}
_NOT_COUNTED = {("apps", "ControllerRevision")}
_NO_COUNTS = {
    "currentNumberScheduled": 0,
    "numberMisscheduled": 0,
    "desiredNumberScheduled": 0,
    "numberReady": 0,
}
_UNSET_WAIT_SECONDS = 300  # DefaultTolerationSeconds


def on_create(resource: Resource, body: Body, has_status: bool, now: str) -> dict[str, Any]:
    """The object as first stored, without the metadata that all kinds get."""
    made = dict(body)
    if has_status and resource != NODE:
        made.pop("status", None)
    if resource == POD:
        made["spec"] = _admitted(made.get("spec") or {})
    made = defaults.defaulted(made)
    if resource == DAEMONSET:
        made["status"] = dict(_NO_COUNTS)
        _annotate(made, "1")
    elif resource == POD:
        made["status"] = {"phase": "Pending", "qosClass": _quality(made.get("spec") or {})}
    elif resource == NAMESPACE:
        metadata = made["metadata"]
        labels = {
            **(metadata.get("labels") or {}),
            "kubernetes.io/metadata.name": metadata.get("name", ""),
        }
        made = {
            **made,
            "metadata": {**metadata, "labels": labels},
            "spec": {"finalizers": ["kubernetes"]},
        }
        made["status"] = {"phase": "Active"}
    elif resource == CRD:
        made["status"] = _established(made.get("spec") or {}, now)
    return made


def on_update(
    resource: Resource, old: Body, new: Body, has_status: bool, subresource: str
) -> dict[str, Any]:
    """The object to store in place of `old`: spec and status have separate endpoints."""
    made = dict(new)
    if subresource:
        made = {**{k: v for k, v in old.items() if k != "status"}, "metadata": new["metadata"]}
        if "status" in new:
            made["status"] = new["status"]
    elif has_status:
        made.pop("status", None)
        if "status" in old:
            made["status"] = old["status"]
    made = defaults.defaulted(made, old)
    if resource == NAMESPACE:
        made["spec"] = old.get("spec", {})
    if resource == DAEMONSET:
        count = int((old["metadata"].get("annotations") or {}).get(names.TEMPLATE_GENERATION) or 1)
        changed = _template(made) != _template(old)
        _annotate(made, str(count + changed))
    return made


def counts_changes(resource: Resource, custom: bool) -> bool:
    """Whether the kind has metadata.generation."""
    kind = (resource.group, resource.kind)
    return custom or (
        (resource.group in _COUNTED_GROUPS or kind in _COUNTED_KINDS) and kind not in _NOT_COUNTED
    )


def desired(body: Body) -> dict[str, Any]:
    """The part of an object whose change increments the generation."""
    return {
        key: value
        for key, value in body.items()
        if key not in ("apiVersion", "kind", "metadata", "status")
    }


def _template(daemonset: Body) -> Any:
    return (daemonset.get("spec") or {}).get("template")


def _annotate(daemonset: dict[str, Any], count: str) -> None:
    metadata = daemonset["metadata"]
    annotations = {**(metadata.get("annotations") or {}), names.TEMPLATE_GENERATION: count}
    daemonset["metadata"] = {**metadata, "annotations": annotations}


def _admitted(spec: Body) -> dict[str, Any]:
    """A new pod after the admission plugins DefaultTolerationSeconds and Priority."""
    tolerations = list(spec.get("tolerations") or ())
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _UNSET_WAIT_SECONDS,
                }
            )
    added = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority", "enableServiceLinks": True}
    return {**added, **spec, "tolerations": tolerations}


def _covers(toleration: Body, key: str) -> bool:
    return toleration.get("key") in (key, None, "") and toleration.get("effect") in (
        "NoExecute",
        None,
        "",
    )


def _quality(spec: Body) -> str:
    """https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/"""
    guaranteed, some = True, False
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            some = some or name in limits or name in requests
            guaranteed = (
                guaranteed and name in limits and requests.get(name, limits[name]) == limits[name]
            )
    return "Guaranteed" if guaranteed and some else "Burstable" if some else "BestEffort"


def _established(spec: Body, now: str) -> dict[str, Any]:
    accepted = spec.get("names") or {}
    conditions = [
        {
            "type": "NamesAccepted",
            "status": "True",
            "lastTransitionTime": now,
            "reason": "NoConflicts",
            "message": "no conflicts found",
        },
        {
            "type": "Established",
            "status": "True",
            "lastTransitionTime": now,
            "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted",
        },
    ]
    stored = [version["name"] for version in spec.get("versions") or () if version.get("storage")]
    return {"conditions": conditions, "acceptedNames": accepted, "storedVersions": stored}


FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class DeleteOptions(msgspec.Struct, frozen=True):
    """The options of a delete: the expected uid, the propagation to dependents, and the grace
    period of a pod in seconds (None: that of the pod).
    """

    uid: str = ""
    propagation: Propagation = Propagation.BACKGROUND
    grace: int | None = None


DEFAULT = DeleteOptions()


def grace_seconds(pod: Body, requested: int | None) -> int:
    """The grace period; none for a pod without a node and for a finished one."""
    if not (pod.get("spec") or {}).get("nodeName") or (pod.get("status") or {}).get("phase") in (
        "Failed",
        "Succeeded",
    ):
        return 0
    return (
        int(pod["spec"].get("terminationGracePeriodSeconds", 30))
        if requested is None
        else requested
    )


def finalizers_of(metadata: Mapping[str, Any], propagation: Propagation) -> list[str]:
    """The finalizers of an object whose deletion begins."""
    kept = [f for f in metadata.get("finalizers") or () if f not in (FOREGROUND, ORPHAN)]
    match propagation:
        case Propagation.FOREGROUND:
            return [*kept, FOREGROUND]
        case Propagation.ORPHAN:
            return [*kept, ORPHAN]
        case Propagation.BACKGROUND:
            return kept


def ending(body: Body, when: float, grace: int, finalizers: list[str]) -> dict[str, Any]:
    """The object with its deletion timestamp; the generation is incremented once."""
    metadata = {
        **body["metadata"],
        "deletionTimestamp": timestamps.text(when),
        "deletionGracePeriodSeconds": grace,
    }
    if "generation" in metadata and "deletionTimestamp" not in body["metadata"]:
        metadata["generation"] += 1
    metadata.pop("finalizers", None)
    if finalizers:
        metadata["finalizers"] = finalizers
    return {**body, "metadata": metadata}


def success(resource: Resource, name: str, uid: str) -> Body:
    """The Status of a completed deletion."""
    details = {"name": name, "kind": resource.plural, "uid": uid}
    if resource.group:
        details["group"] = resource.group
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
