"""Whether a node should run a DaemonSet's pod, may keep an existing one, or must not run it: by its
labels, and by the taints that the pod tolerates with the tolerations that are added to it.

Resources, host ports, node conditions and `spec.unschedulable` are ignored: the scheduler considers
them, and the pod waits.
https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#how-daemon-pods-are-scheduled
https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.live import Node, Taint
from gitops_ds.core.objects import Body
from gitops_ds.core.sources.bundle import Requirement
from gitops_ds.kube.apimachinery import label_selector

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


def daemon_tolerations(pod_spec: Body) -> list[dict[str, Any]]:
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


# sets of taints by placer; an autoscaler's taints contain a time, so each one differs
_TAINTS_KEPT = 256


class Placement(Enum):
    """RUN: the node should have a pod. KEEP: no pod is created, an existing one stays. EVICT: no
    pod is allowed.
    """

    RUN = "run"
    KEEP = "keep"
    EVICT = "evict"


# for each node of each decision: through the class, an access takes 0.1 µs in Python 3.11
RUN, KEEP, EVICT = Placement


class Term(msgspec.Struct, frozen=True):
    """One usable node selector term: conditions on labels, and on the node's name."""

    labels: tuple[Requirement, ...]
    names: tuple[Requirement, ...]

    def matches(self, node: Node) -> bool:
        """Whether the node meets all conditions."""
        return label_selector.all_match(self.labels, node.labels) and label_selector.all_match(
            self.names, {"metadata.name": node.name}
        )


@dataclass(frozen=True, slots=True)
class Placer:
    """The parsed placement rules of one pod template. `terms` is None without a required node
    affinity.
    """

    node_name: str
    node_selector: Mapping[str, str]
    terms: tuple[Term, ...] | None
    tolerations: tuple[Body, ...]
    _by_taints: dict[tuple[Taint, ...], Placement] = field(
        default_factory=dict, compare=False, repr=False
    )

    def place(self, node: Node) -> Placement:
        """The placement on that node."""
        if self.node_name and self.node_name != node.name:
            return EVICT
        if (self.node_selector or self.terms is not None) and not self.selects(node):
            return EVICT
        if not node.taints:
            return RUN
        placement = self._by_taints.get(node.taints)
        if placement is None:
            if len(self._by_taints) >= _TAINTS_KEPT:
                self._by_taints.clear()
            placement = self._by_taints[node.taints] = _placement(
                untolerated(self.tolerations, node.taints)
            )
        return placement

    def selects(self, node: Node) -> bool:
        """Whether node selector and required node affinity both match."""
        labels = node.labels
        for key, value in self.node_selector.items():
            if labels.get(key) != value:
                return False
        return self.terms is None or any(term.matches(node) for term in self.terms)


def read(template: Body) -> Placer:
    """The placement rules of a DaemonSet's pod from this template (an object with `metadata` and
    `spec`).
    """
    spec = template.get("spec") or {}
    return Placer(
        str(spec.get("nodeName") or ""),
        {key: str(value) for key, value in (spec.get("nodeSelector") or {}).items()},
        required_terms(spec),
        tuple(daemon_tolerations(spec)),
    )


class Placers:
    """The placers of DaemonSets, parsed once for each template."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Body, Placer]] = {}  # by UID

    def of(self, daemonset: DaemonSet) -> Placer:
        """That of its present template."""
        template, placer = self._known.get(daemonset.uid, (None, None))
        if placer is None or template is not daemonset.template:
            placer = read(daemonset.template)
            self._known[daemonset.uid] = daemonset.template, placer
        return placer

    def forget(self, uid: str) -> None:
        """Drops that of a deleted DaemonSet."""
        self._known.pop(uid, None)


def required_terms(pod_spec: Body) -> tuple[Term, ...] | None:
    """The usable terms of the required node affinity, one of which must match; None without such
    affinity.

    An empty term, or one with an invalid requirement, matches no node and is omitted.
    """
    required = ((pod_spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if required is None:
        return None
    return tuple(
        term for term in map(_term, required.get("nodeSelectorTerms") or ()) if term is not None
    )


def _term(body: Body) -> Term | None:
    labels = tuple(label_selector.from_body(entry) for entry in body.get("matchExpressions") or ())
    names = tuple(label_selector.from_body(entry) for entry in body.get("matchFields") or ())
    if not labels and not names:
        return None
    if not _all(label_selector.is_valid, labels) or not _all(_valid_field, names):
        return None
    return Term(labels, names)


def _valid_field(requirement: Requirement) -> bool:
    return requirement.operator in ("In", "NotIn") and len(requirement.values) == 1


def _all(test: Callable[[Requirement], bool], entries: Iterable[Requirement]) -> bool:
    return all(test(entry) for entry in entries)


def _placement(effects: frozenset[str]) -> Placement:
    if not effects:
        return RUN
    return EVICT if NO_EXECUTE in effects else KEEP
