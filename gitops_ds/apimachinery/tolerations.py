"""The taints that a pod tolerates, and the tolerations that are added to a DaemonSet's pods.

https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gitops_ds.model.live import Taint
from gitops_ds.model.objects import Body

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"

_ALWAYS = (
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
)
_HOST_NETWORK = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE)


def of_daemon(pod_spec: Body) -> list[dict[str, Any]]:
    """The tolerations of a DaemonSet's pod: those of the template, then the default ones in
    upstream's order.

    A toleration of the template with the same key, effect, operator and value is replaced by the
    plain default, which has no time limit (`AddOrUpdateTolerationInPodSpec` upstream).
    """
    tolerations = [dict(toleration) for toleration in pod_spec.get("tolerations") or ()]
    of_template = [_meaning(toleration) for toleration in tolerations]
    for key, effect in (*_ALWAYS, *([_HOST_NETWORK] if pod_spec.get("hostNetwork") else [])):
        plain = {"key": key, "operator": "Exists", "effect": effect}
        meaning = (key, effect, "Exists", "")
        if meaning in of_template:
            tolerations[of_template.index(meaning)] = plain
        else:
            tolerations.append(plain)
    return tolerations


def tolerates(toleration: Body, taint: Taint) -> bool:
    """Whether one toleration covers one taint. `Gt` and `Lt` need a feature gate that is off, so
    they match no taint.

    An empty key with `Equal` still compares values, although the API server refuses to store such a
    toleration.
    """
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint.effect:
        return False
    if key and key != taint.key:
        return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return (toleration.get("value") or "") == taint.value
        case _:
            return False


def untolerated(tolerations: Sequence[Body], taints: Sequence[Taint]) -> frozenset[str]:
    """The effects (NoSchedule, NoExecute) of the taints that no toleration covers; PreferNoSchedule
    never counts.
    """
    return frozenset(
        taint.effect
        for taint in taints
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE)
        and not any(tolerates(toleration, taint) for toleration in tolerations)
    )


def _meaning(toleration: Body) -> tuple[str, ...]:
    """The fields that identify a toleration, without its time limit."""
    return tuple(toleration.get(field) or "" for field in ("key", "effect", "operator", "value"))
