"""The objects that a pod refers to, and what its ServiceAccount refers to and is permitted by.

A pod is not created or does not start without most of them, and works only with the rights of its
account: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.core.objects import Body, Key, items_of

_RBAC: Final = "rbac.authorization.k8s.io"
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_CLASSES: Final = (
    ("priorityClassName", "scheduling.k8s.io", "PriorityClass"),
    ("runtimeClassName", "node.k8s.io", "RuntimeClass"),
)
_CLAIMS: Final = (
    ("resourceClaimName", "ResourceClaim"),
    ("resourceClaimTemplateName", "ResourceClaimTemplate"),
)


def of(namespace: str, pod_spec: Body) -> frozenset[Key]:
    """The objects that a pod in a namespace refers to by name, optional ones too."""
    account = pod_spec.get("serviceAccountName") or pod_spec.get("serviceAccount") or "default"
    found = {Key("", "ServiceAccount", namespace, str(account))}
    found |= {
        Key(group, kind, "", str(pod_spec[field]))
        for field, group, kind in _CLASSES
        if pod_spec.get(field)
    }
    found |= {
        Key("resource.k8s.io", kind, namespace, str(claim[field]))
        for claim in items_of(pod_spec.get("resourceClaims"))
        for field, kind in _CLAIMS
        if claim.get(field)
    }
    found |= {Key("", kind, namespace, name) for kind, name in _core(pod_spec) if name}
    return frozenset(found)


def of_account(account: Key, objects: Mapping[Key, Body]) -> frozenset[Key]:
    """The bindings among objects with this ServiceAccount as a subject, their roles, and the
    Secrets that the account names.
    """
    found = set[Key]()
    for key, body in objects.items():
        if key.group == _RBAC and any(
            _is_account(subject, account, key) for subject in items_of(body.get("subjects"))
        ):
            role = body.get("roleRef") or {}
            kind = str(role.get("kind") or "")
            space = key.namespace if kind == "Role" else ""
            found |= {key, Key(_RBAC, kind, space, str(role.get("name") or ""))}
    body = objects.get(account) or {}
    for field in ("secrets", "imagePullSecrets"):
        for entry in items_of(body.get(field)):
            found.add(Key("", "Secret", account.namespace, _name(entry)))
    return frozenset(found)


def _is_account(subject: Mapping[str, Any], account: Key, binding: Key) -> bool:
    """Whether a subject is the ServiceAccount, by its name or by a group of it.

    https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-subjects
    """
    kind, name = subject.get("kind"), _name(subject)
    if kind == "ServiceAccount":
        space = str(subject.get("namespace") or binding.namespace)
        return (space, name) == (account.namespace, account.name)
    if kind == "User":
        return name == f"system:serviceaccount:{account.namespace}:{account.name}"
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{account.namespace}")
    return kind == "Group" and name in groups


def _core(pod_spec: Body) -> Iterator[tuple[str, str]]:
    """Kind and name of each object of the core group, in the namespace of the pod."""
    for secret in items_of(pod_spec.get("imagePullSecrets")):
        yield "Secret", _name(secret)
    for volume in items_of(pod_spec.get("volumes")):
        yield from _of_volume(volume)
    for group in _CONTAINERS:
        for container in items_of(pod_spec.get(group)):
            for source in items_of(container.get("envFrom")):
                yield "ConfigMap", _name(source.get("configMapRef"))
                yield "Secret", _name(source.get("secretRef"))
            for variable in items_of(container.get("env")):
                source = variable.get("valueFrom") or {}
                yield "ConfigMap", _name(source.get("configMapKeyRef"))
                yield "Secret", _name(source.get("secretKeyRef"))


def _of_volume(volume: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "ConfigMap", _name(volume.get("configMap"))
    claim = volume.get("persistentVolumeClaim") or {}
    yield "PersistentVolumeClaim", str(claim.get("claimName") or "")
    for source in items_of((volume.get("projected") or {}).get("sources")):
        yield "ConfigMap", _name(source.get("configMap"))
        yield "Secret", _name(source.get("secret"))
    for source in volume.values():  # secret, azureFile; cephfs, csi, iscsi, rbd and others
        if isinstance(source, Mapping):
            yield "Secret", str(source.get("secretName") or "")
            yield "Secret", _name(source.get("secretRef") or source.get("nodePublishSecretRef"))


def _name(reference: Any) -> str:
    return str((reference or {}).get("name") or "")
