"""An object as the API server stores it: with defaults, without empty values, with canonical
quantities.

The rules are those of Kubernetes 1.37: the `+default` markers and the types of k8s.io/api
(kubernetes_types.py), and the functions of pkg/apis/*/v1/defaults.go, which are the table here.
tests/cluster compares them with a real API server. Objects of kinds outside the table are returned
unchanged.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from gitops_ds.core.objects import Body
from gitops_ds.kube.apimachinery import kubernetes_types, quantities

_ZERO: Mapping[str, Any] = {
    "string": "",
    "int": 0,
    "bool": False,
    "float": 0,
    "quantity": "0",
    "intOrString": 0,
    "time": None,
}
# The types whose values, unless empty, are stored as they are.
_PLAIN = _ZERO.keys() - {"quantity"}
_RBAC = "rbac.authorization.k8s.io"


def defaulted(body: Body, old: Body | None = None) -> dict[str, Any]:
    """The object as it would be stored. `status` and the server's own metadata are neither changed
    nor added.

    `old` is the stored object that it replaces: a part that the body shares with it (the same
    Python object) has its defaults already and is not visited.
    """
    struct = kubernetes_types.struct_of(str(body.get("apiVersion", "")), str(body.get("kind", "")))
    if struct is None:
        return dict(body)
    rest = {key: value for key, value in body.items() if key != "status"}
    stored = _struct(rest, struct, old or {})
    stored.pop("status", None)
    head = {"apiVersion": body["apiVersion"], "kind": body["kind"]}
    return {**head, **stored, **({"status": body["status"]} if "status" in body else {})}


def without_string_data(body: Body) -> Body:
    """A Secret with its `stringData` in `data`; another object is returned unchanged.

    An API server does not remove from `data` what left `stringData`
    (https://github.com/kubernetes/kubernetes/issues/108008).
    """
    if body.get("kind") != "Secret" or body.get("apiVersion") != "v1" or "stringData" not in body:
        return body
    secret = dict(body)
    _merge_string_data(secret)
    return secret


def defaulted_template(template: Mapping[str, Any]) -> dict[str, Any]:
    """A pod template as it would be stored inside a DaemonSet."""
    return _struct(template, "core/v1.PodTemplateSpec")


_NOTHING: Mapping[str, Any] = {}


def _struct(
    value: Mapping[str, Any], struct: str, old: Mapping[str, Any] = _NOTHING
) -> dict[str, Any]:
    filled = dict(value)
    if fill := _DEFAULTS.get(struct):
        fill(filled)
    fields = kubernetes_types.fields(struct)
    stored: dict[str, Any] = {}
    for name, field_value in filled.items():
        field = fields.get(name)
        if field is None:
            if name not in ("apiVersion", "kind"):
                stored[name] = field_value
        elif (field_value and field.type in _PLAIN) or (name in old and field_value is old[name]):
            stored[name] = field_value
        elif _is_struct_in_both(field.type, field_value, old.get(name)):
            stored[name] = _struct(field_value, field.type, old[name])
        elif (kept := _field(field_value, field, struct)) is not _LEFT_OUT:
            stored[name] = kept
    for name, field in _stored_when_absent(struct).items():
        if name not in filled and (kept := _field(None, field, struct)) is not _LEFT_OUT:
            stored[name] = kept
    return stored


def _is_struct_in_both(type: str, value: Any, old: Any) -> bool:
    return isinstance(old, dict) and isinstance(value, dict) and kubernetes_types.is_struct(type)


_LEFT_OUT = object()


@cache
def _stored_when_absent(struct: str) -> Mapping[str, kubernetes_types.Field]:
    """The fields of a struct that are stored although a body omits them."""
    return {
        name: field
        for name, field in kubernetes_types.fields(struct).items()
        if _field(None, field, struct) is not _LEFT_OUT
    }


def _field(original: Any, field: kubernetes_types.Field, struct: str) -> Any:
    if field.pointer:
        value = field.default if original is None else original
        if value is None:
            return _LEFT_OUT if field.omitted_when_empty else None
        return _value(value, field.type, struct)
    if kubernetes_types.is_struct(field.type):
        return _struct(original or {}, field.type)
    zero = _ZERO.get(field.type)
    value = (
        field.default
        if field.default is not None and (original is None or original == zero)
        else original
    )
    if field.type == "quantity":
        return quantities.canonical(value) if value is not None else "0"
    empty = value is None or value == zero or (not value and isinstance(value, list | dict))
    if empty and (field.omitted_when_empty or field.type == "time"):
        return _LEFT_OUT
    return zero if value is None else _value(value, field.type, struct)


def _value(value: Any, type: str, struct: str) -> Any:
    if value is None:  # in a list or a map: Go decodes it as the zero of its type
        return "" if type == "bytes" else _ZERO.get(type)
    if type.startswith("[]"):
        return (
            [_value(item, type[2:], struct) for item in value] if isinstance(value, list) else value
        )
    if type.startswith("{}"):
        return (
            {key: _value(item, type[2:], struct) for key, item in value.items()}
            if isinstance(value, dict)
            else value
        )
    if type == "quantity":
        return quantities.canonical(value, round_to_milli=struct in _ROUNDED)
    if kubernetes_types.is_struct(type):
        return _struct(value, type) if isinstance(value, Mapping) else value
    return value


# Lists of resources are rounded up to a thousandth (SetDefaults_ResourceList).
_ROUNDED = frozenset(
    (
        "core/v1.ResourceRequirements",
        "core/v1.VolumeResourceRequirements",
        "core/v1.ResourceQuotaSpec",
        "core/v1.LimitRangeItem",
    )
)


def _set(value: dict[str, Any], **defaults: Any) -> None:
    for name, default in defaults.items():
        if value.get(name) in (None, "", 0, []):
            value[name] = default


def _pod_spec(spec: dict[str, Any]) -> None:
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    _set(spec, dnsPolicy="ClusterFirst", restartPolicy="Always", schedulerName="default-scheduler")
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = 30


def _pull_policy(image: str) -> str:
    """Always for the tag latest, or no tag and no digest.
    https://kubernetes.io/docs/concepts/containers/images/#imagepullpolicy-defaulting
    """
    name, at, _ = image.partition("@")
    if at:
        return "IfNotPresent"
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _container(container: dict[str, Any]) -> None:
    _set(container, terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File")
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(str(container.get("image", "")))


def _volume(volume: dict[str, Any]) -> None:
    if all(volume.get(name) is None for name in volume if name != "name"):
        volume["emptyDir"] = {}
    image = volume.get("image")
    if isinstance(image, dict) and not image.get("pullPolicy"):
        volume["image"] = {**image, "pullPolicy": _pull_policy(str(image.get("reference", "")))}


def _mode(source: dict[str, Any]) -> None:
    if source.get("defaultMode") is None:
        source["defaultMode"] = 0o644


def _present(**defaults: Any) -> Callable[[dict[str, Any]], None]:
    """Fills a pointer that is absent; zero values of a pointer are kept."""

    def fill(value: dict[str, Any]) -> None:
        for name, default in defaults.items():
            if value.get(name) is None:
                value[name] = default

    return fill


def _nonzero(**defaults: Any) -> Callable[[dict[str, Any]], None]:
    """Fills a plain value that is absent or zero."""
    return lambda value: _set(value, **defaults)


def _both(
    first: Callable[[dict[str, Any]], None], second: Callable[[dict[str, Any]], None]
) -> Callable[[dict[str, Any]], None]:
    def fill(value: dict[str, Any]) -> None:
        first(value)
        second(value)

    return fill


def _daemonset_spec(spec: dict[str, Any]) -> None:
    strategy = dict(spec.get("updateStrategy") or {})
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = dict(strategy.get("rollingUpdate") or {})
        _present(maxUnavailable=1, maxSurge=0)(rolling)
        strategy["rollingUpdate"] = rolling
    spec["updateStrategy"] = strategy
    _present(revisionHistoryLimit=10)(spec)


def _deployment_spec(spec: dict[str, Any]) -> None:
    strategy = dict(spec.get("strategy") or {})
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = dict(strategy.get("rollingUpdate") or {})
        _present(maxUnavailable="25%", maxSurge="25%")(rolling)
        strategy["rollingUpdate"] = rolling
    spec["strategy"] = strategy
    _present(replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)(spec)


def _stateful_set_spec(spec: dict[str, Any]) -> None:
    strategy = dict(spec.get("updateStrategy") or {})
    if not strategy.get("type"):
        strategy = {
            **strategy,
            "type": "RollingUpdate",
            "rollingUpdate": dict(strategy.get("rollingUpdate") or {}),
        }
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        # the latter since 1.35
        strategy["rollingUpdate"] = {
            "partition": 0,
            "maxUnavailable": 1,
            **strategy["rollingUpdate"],
        }
    spec["updateStrategy"] = strategy
    retention = {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
        **(spec.get("persistentVolumeClaimRetentionPolicy") or {}),
    }
    spec["persistentVolumeClaimRetentionPolicy"] = retention
    _set(spec, podManagementPolicy="OrderedReady")
    _present(replicas=1, revisionHistoryLimit=10)(spec)


def _service_spec(spec: dict[str, Any]) -> None:
    _set(spec, sessionAffinity="None", type="ClusterIP")
    if spec["sessionAffinity"] == "ClientIP" and not spec.get("sessionAffinityConfig"):
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    if spec["type"] in ("NodePort", "LoadBalancer") or (
        spec["type"] == "ClusterIP" and spec.get("externalIPs")
    ):
        _set(spec, externalTrafficPolicy="Cluster")
    if spec["type"] != "ExternalName":
        _set(spec, internalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        _present(allocateLoadBalancerNodePorts=True)(spec)


def _service_port(port: dict[str, Any]) -> None:
    if port.get("targetPort") in (None, 0, ""):
        port["targetPort"] = port.get("port")


def _namespace(namespace: dict[str, Any]) -> None:
    metadata = dict(namespace.get("metadata") or {})
    if name := metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": name}
    namespace["metadata"] = metadata
    namespace["spec"] = {"finalizers": ["kubernetes"], **(namespace.get("spec") or {})}


def _role_binding(binding: dict[str, Any]) -> None:
    reference = dict(binding.get("roleRef") or {})
    _set(reference, apiGroup=_RBAC)
    binding["roleRef"] = reference


def _subject(subject: dict[str, Any]) -> None:
    if subject.get("kind") in ("User", "Group"):
        _set(subject, apiGroup=_RBAC)


def _network_policy_spec(spec: dict[str, Any]) -> None:
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _job(job: dict[str, Any]) -> None:
    """A Job's own defaults; the template of a CronJob doesn't get them."""
    spec = dict(job.get("spec") or {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    replacement = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    _present(
        parallelism=1,
        backoffLimit=6,
        completionMode="NonIndexed",
        suspend=False,
        manualSelector=False,
    )(spec)
    _present(podReplacementPolicy=replacement)(spec)
    job["spec"] = spec


def _secret(secret: dict[str, Any]) -> None:
    _set(secret, type="Opaque")
    _merge_string_data(secret)


def _merge_string_data(secret: dict[str, Any]) -> None:
    if words := secret.pop("stringData", None):
        secret["data"] = {
            **(secret.get("data") or {}),
            **{key: _base64("" if word is None else str(word)) for key, word in words.items()},
        }


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _ingress_class_spec(spec: dict[str, Any]) -> None:
    if spec.get("parameters"):
        spec["parameters"] = {"scope": "Cluster", **spec["parameters"]}


_DEFAULTS: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "core/v1.PodSpec": _pod_spec,
    "core/v1.Container": _container,
    "core/v1.EphemeralContainer": _container,
    "core/v1.Volume": _volume,
    "core/v1.HostPathVolumeSource": _present(type=""),
    "core/v1.SecretVolumeSource": _mode,
    "core/v1.ConfigMapVolumeSource": _mode,
    "core/v1.DownwardAPIVolumeSource": _mode,
    "core/v1.ProjectedVolumeSource": _mode,
    "core/v1.ServiceAccountTokenProjection": _present(expirationSeconds=3600),
    "core/v1.ObjectFieldSelector": _nonzero(apiVersion="v1"),
    "core/v1.HTTPGetAction": _nonzero(path="/", scheme="HTTP"),
    "core/v1.Probe": _nonzero(
        timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3
    ),
    "core/v1.PersistentVolumeClaimSpec": _present(volumeMode="Filesystem"),
    "core/v1.PersistentVolumeSpec": _both(
        _nonzero(persistentVolumeReclaimPolicy="Retain"), _present(volumeMode="Filesystem")
    ),
    "core/v1.Secret": _secret,
    "core/v1.ServiceSpec": _service_spec,
    "core/v1.ServicePort": _service_port,
    "core/v1.Namespace": _namespace,
    "core/v1.EndpointPort": _nonzero(protocol="TCP"),
    "apps/v1.DaemonSetSpec": _daemonset_spec,
    "apps/v1.DeploymentSpec": _deployment_spec,
    "apps/v1.StatefulSetSpec": _stateful_set_spec,
    "apps/v1.ReplicaSetSpec": _present(replicas=1),
    "batch/v1.Job": _job,
    "batch/v1.CronJobSpec": _both(
        _nonzero(concurrencyPolicy="Allow"),
        _present(suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1),
    ),
    "rbac/v1.RoleBinding": _role_binding,
    "rbac/v1.ClusterRoleBinding": _role_binding,
    "rbac/v1.Subject": _subject,
    "networking/v1.NetworkPolicySpec": _network_policy_spec,
    "networking/v1.NetworkPolicyPort": _present(protocol="TCP"),
    "networking/v1.IngressClassSpec": _ingress_class_spec,
    "scheduling/v1.PriorityClass": _present(preemptionPolicy="PreemptLowerPriority"),
    "storage/v1.StorageClass": _present(reclaimPolicy="Delete", volumeBindingMode="Immediate"),
    "storage/v1.CSIDriverSpec": _present(
        attachRequired=True,
        podInfoOnMount=False,
        storageCapacity=False,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        volumeLifecycleModes=["Persistent"],
        requiresRepublish=False,
        seLinuxMount=False,
        preventPodSchedulingIfMissing=False,
    ),
}
