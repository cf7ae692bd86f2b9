"""Advice about the nodes of an agent: taints, labels, affinity, priority.

Source:
https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#how-daemon-pods-are-scheduled
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gitops_ds.checks.engine.rule import (
    POD,
    Spec,
    Violation,
    class_of,
    items,
    of_daemonsets,
    rule,
    section,
)
from gitops_ds.core.finding import Fix, Mend, Severity, advice
from gitops_ds.core.live import Taint
from gitops_ds.core.objects import Body, Path
from gitops_ds.kube.apimachinery import node_eligibility

_TOLERATIONS: Final[Path] = (*POD, "tolerations")
_NODE_SELECTOR: Final[Path] = (*POD, "nodeSelector")
_AFFINITY: Final[Path] = (*POD, "affinity")
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WISHES: Final[Path] = (*_AFFINITY, "nodeAffinity", PREFERRED)
_PRIORITY: Final[Path] = (*POD, "priorityClassName")

_CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
_MASTER: Final = "node-role.kubernetes.io/master"
_CONTROL_PLANE_TAINT: Final = Taint(_CONTROL_PLANE, node_eligibility.NO_SCHEDULE)
_TOLERATE_CONTROL_PLANE: Final = {
    "key": _CONTROL_PLANE,
    "operator": "Exists",
    "effect": node_eligibility.NO_SCHEDULE,
}

NODE_CRITICAL: Final = "system-node-critical"
SYSTEM_PRIORITIES: Final = frozenset((NODE_CRITICAL, "system-cluster-critical"))

_ADDED, _ADDED_ON_HOST_NETWORK = (
    {(toleration["key"], toleration["effect"]) for toleration in added}
    for added in map(node_eligibility.daemon_tolerations, ({}, {"hostNetwork": True}))
)

# https://kubernetes.io/docs/reference/labels-annotations-taints/
_OLD_LABELS: Final = {
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_PLATFORM: Final = frozenset(
    ("kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch")
)
_SOME_NODES: Final = frozenset(("gpu", "general"))  # classes of agents that do not need every node
# a node requires these agents before and while other pods run
_RUNS_ANYWHERE: Final = frozenset(("cni", "csi"))


@rule(advice("DS301", Severity.WARNING, "control plane taint is not tolerated"))
@of_daemonsets
def control_plane(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """An agent for every node does not tolerate the taint of the control plane."""
    kind = class_of(body)
    if (
        not (kind or pod.get("priorityClassName") == NODE_CRITICAL)
        or kind in _SOME_NODES
        or not _for_every_node(pod)
    ):
        return
    pod_tolerations = items(pod.get("tolerations"))
    if not kind and any(map(_is_of_a_pool, pod_tolerations)):
        return  # a device plugin: for the nodes with that taint
    if node_eligibility.untolerated(pod_tolerations, (_CONTROL_PLANE_TAINT,)):
        why = f"its class is {kind}" if kind else f"it is {NODE_CRITICAL}"
        message = (
            f"the agent seems to be for every node ({why}), but does not tolerate the taint of the "
            f"control plane"
        )
        yield Violation(
            _TOLERATIONS if pod_tolerations else POD,
            message,
            _tolerate_too(pod_tolerations, f"tolerate {_CONTROL_PLANE}"),
        )


def _is_of_a_pool(toleration: Spec) -> bool:
    """Whether it names a taint of some nodes, such as nvidia.com/gpu, and none of Kubernetes."""
    key = str(toleration.get("key") or "")
    return bool(key) and not key.partition("/")[0].endswith("kubernetes.io")


def _for_every_node(pod: Spec) -> bool:
    """Whether the only requirements are the operating system (Linux) and the architecture, or
    exclude a few nodes.
    """
    chosen = section(pod.get("nodeSelector"))
    if not _PLATFORM.issuperset(chosen) or "windows" in chosen.values():
        return False
    return all(
        (condition.get("key") in _PLATFORM and "windows" not in items(condition.get("values")))
        or (
            condition.get("operator") == "NotIn"
            and not str(condition.get("key")).startswith("node-role.")
        )
        for _, condition in _conditions(pod)
    )


def _tolerate_too(pod_tolerations: list[Spec], words: str) -> Fix:
    return Fix(words, (Mend(_TOLERATIONS, [*pod_tolerations, _TOLERATE_CONTROL_PLANE]),))


@rule(advice("DS302", Severity.WARNING, "every taint is tolerated"))
@of_daemonsets
def some_taints_hold(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """An agent tolerates every taint, although its node works without it."""
    pod_tolerations = items(pod.get("tolerations"))
    keyless = [
        toleration
        for toleration in pod_tolerations
        if not toleration.get("key") and toleration.get("operator") == "Exists"
    ]
    effects = {toleration.get("effect") or "" for toleration in keyless}
    if (
        not (
            "" in effects or effects >= {node_eligibility.NO_SCHEDULE, node_eligibility.NO_EXECUTE}
        )
        or class_of(body) in _RUNS_ANYWHERE
    ):
        return
    message = (
        "it tolerates every taint, and therefore runs on broken, drained and dedicated nodes as "
        "well; tolerate only the intended taints"
    )
    instead = [toleration for toleration in pod_tolerations if toleration not in keyless]
    fix = _tolerate_too(instead, f"tolerate {_CONTROL_PLANE} instead of every taint")
    yield Violation((*_TOLERATIONS, pod_tolerations.index(keyless[0])), message, fix)


@rule(advice("DS303", Severity.WARNING, "control plane label or taint is outdated"))
@of_daemonsets
def new_role_name(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """`master` was replaced by `control-plane` in Kubernetes 1.24 (label) and 1.25 (taint)."""
    pod_tolerations = items(pod.get("tolerations"))
    keys = [toleration.get("key") for toleration in pod_tolerations]
    if _MASTER in keys and node_eligibility.untolerated(pod_tolerations, (_CONTROL_PLANE_TAINT,)):
        message = (
            f"kubeadm no longer sets the taint {_MASTER} since Kubernetes 1.25: tolerate "
            f"{_CONTROL_PLANE} as well"
        )
        yield Violation(
            (*_TOLERATIONS, keys.index(_MASTER), "key"),
            message,
            _tolerate_too(pod_tolerations, f"tolerate {_CONTROL_PLANE} as well"),
        )
    chosen, gone = (
        section(pod.get("nodeSelector")),
        f"kubeadm no longer sets the label {_MASTER} since Kubernetes 1.24",
    )
    if _MASTER in chosen and _CONTROL_PLANE not in chosen:
        path = (*_NODE_SELECTOR, _MASTER)
        yield Violation(
            path,
            f"{gone}: write {_CONTROL_PLANE}",
            Fix(f"write {_CONTROL_PLANE}", (Mend(path, key=_CONTROL_PLANE),)),
        )
    conditions = list(_conditions(pod))
    if not any(condition.get("key") == _CONTROL_PLANE for _, condition in conditions):
        for way, condition in conditions:
            if condition.get("key") == _MASTER:
                fix = Fix(f"write {_CONTROL_PLANE}", (Mend((*way, "key"), _CONTROL_PLANE),))
                yield Violation(
                    (*way, "key"),
                    f"{gone}: require {_CONTROL_PLANE}, in a separate term if old nodes remain",
                    fix,
                )


@rule(advice("DS305", Severity.INFO, "toleration is redundant"))
@of_daemonsets
def only_own_tolerations(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """The controller adds this toleration to every pod, without a time limit."""
    pod_tolerations = pod.get("tolerations")
    if not pod_tolerations:
        return
    added = _ADDED_ON_HOST_NETWORK if pod.get("hostNetwork") else _ADDED
    for index, toleration in enumerate(pod_tolerations):
        if (
            not toleration
            or (toleration.get("key"), toleration.get("effect")) not in added
            or toleration.get("operator") != "Exists"
            or toleration.get("value")
        ):
            continue
        path = (*_TOLERATIONS, index)
        limit = (
            "; its tolerationSeconds have no effect"
            if toleration.get("tolerationSeconds") is not None
            else ""
        )
        taint = f"{toleration['key']}:{toleration['effect']}"
        message = f"the DaemonSet controller adds the toleration {taint} to every pod{limit}"
        yield Violation(path, message, Fix("remove this toleration", (Mend(path),), safe=True))


@rule(advice("DS308", Severity.WARNING, "node label is deprecated"))
@of_daemonsets
def current_labels(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """A deprecated node label."""
    chosen = section(pod.get("nodeSelector"))
    for old in chosen:
        if new := _OLD_LABELS.get(old):
            path = (*_NODE_SELECTOR, old)
            message = f"the label {old} is deprecated: use {new}"
            twice = chosen.get(new) == chosen[old]
            mend = Mend(path) if twice else Mend(path, key=new)
            yield Violation(
                path,
                message,
                Fix(
                    f"remove {old}" if twice else f"write {new}",
                    (mend,),
                    safe=twice or new not in chosen,
                ),
            )
    for way, condition in (*_conditions(pod), *_wishes(pod)):
        if new := _OLD_LABELS.get(str(condition.get("key"))):
            path = (*way, "key")
            yield Violation(
                path,
                f"the label {condition['key']} is deprecated: use {new}",
                Fix(f"write {new}", (Mend(path, new),), safe=True),
            )


@rule(advice("DS310", Severity.WARNING, "pod affinity on a DaemonSet", on=False))
@of_daemonsets
def no_pod_affinity(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """With one pod per node, pod affinity can only keep pods Pending."""
    affinity = section(pod.get("affinity"))
    for path, terms in (
        *(
            ((*_AFFINITY, field), affinity.get(field))
            for field in ("podAffinity", "podAntiAffinity")
        ),
        ((*POD, "topologySpreadConstraints"), pod.get("topologySpreadConstraints")),
    ):
        if terms:
            sidecar = "for pods of another workload use a sidecar"
            message = (
                f"a DaemonSet has one pod on each of its nodes: {path[-1]} can only keep it "
                f"Pending; {sidecar}"
            )
            yield Violation(path, message, Fix(f"remove {path[-1]}", (Mend(path),)))


@rule(advice("DS311", Severity.INFO, "preferred node affinity has no effect", on=False))
@of_daemonsets
def no_wishes(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """The controller ignores preferred node affinity."""
    if section(section(pod.get("affinity")).get("nodeAffinity")).get(PREFERRED):
        message = "the DaemonSet controller ignores preferences: every eligible node gets a pod"
        yield Violation(_WISHES, message, Fix(f"remove {PREFERRED}", (Mend(_WISHES),)))


@rule(advice("DS312", Severity.WARNING, "priorityClassName is not set"))
@of_daemonsets
def priority(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """priorityClassName is not set."""
    if not pod.get("priorityClassName"):
        message = (
            "without priorityClassName the agent is among the first to be evicted, and stays "
            "Pending on a full node"
        )
        yield Violation(
            _PRIORITY,
            message,
            Fix(f"priorityClassName: {NODE_CRITICAL}", (Mend(_PRIORITY, NODE_CRITICAL),)),
        )


@rule(advice("DS317", Severity.INFO, "required node label can exclude nodes", on=False))
@of_daemonsets
def hard_limits(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """A required label, other than of the platform, excludes nodes that lack or lose it."""
    chosen = [((*_NODE_SELECTOR, key), key) for key in section(pod.get("nodeSelector"))]
    terms = [
        ((*way, "key"), str(condition.get("key")))
        for way, condition in _conditions(pod)
        if condition.get("operator") in ("In", "Exists")
    ]
    for path, key in (*chosen, *terms):
        if key not in _PLATFORM:
            message = (
                f"a node without the label {key} does not run the agent: require it only if the "
                f"agent cannot run otherwise (a device, a platform)"
            )
            yield Violation(path, message)


@rule(advice("DS314", Severity.ERROR, "agent selects a single node", on=False))
@of_daemonsets
def no_single_node(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """nodeName restricts a DaemonSet to a single node."""
    if pod.get("nodeName"):
        path = (*POD, "nodeName")
        message = (
            f"only the node {pod['nodeName']} runs a pod: remove nodeName, or use a Deployment or "
            f"a static pod"
        )
        yield Violation(path, message, Fix("remove nodeName", (Mend(path),)))


@rule(advice("DS320", Severity.WARNING, "schedulerName names another scheduler", on=False))
@of_daemonsets
def known_scheduler(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """Without the named scheduler no pod is scheduled."""
    name = pod.get("schedulerName")
    if name and name != "default-scheduler":
        path = (*POD, "schedulerName")
        yield Violation(
            path,
            f"if the scheduler {name} is not running, every pod stays Pending",
            Fix("remove schedulerName", (Mend(path),)),
        )


@rule(advice("DS315", Severity.WARNING, "serviceAccount is deprecated"))
@of_daemonsets
def account_by_its_name(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """serviceAccount is deprecated; serviceAccountName takes precedence."""
    old = pod.get("serviceAccount")
    if not old:
        return
    path, name = (*POD, "serviceAccount"), pod.get("serviceAccountName")
    fix = Fix("remove serviceAccount", (Mend(path),), safe=True)
    if not name:
        fix = Fix("write serviceAccountName", (Mend(path, key="serviceAccountName"),), safe=True)
    other = f"; serviceAccountName is {name} and takes precedence" if name and name != old else ""
    yield Violation(path, f"serviceAccount is deprecated: use serviceAccountName{other}", fix)


def required_terms(pod: Spec) -> list[tuple[Path, Spec]]:
    """The required node selector terms, and the path of each."""
    required = section(section(section(pod.get("affinity")).get("nodeAffinity")).get(REQUIRED))
    return [
        ((*_AFFINITY, "nodeAffinity", REQUIRED, "nodeSelectorTerms", index), section(term))
        for index, term in enumerate(required.get("nodeSelectorTerms") or ())
    ]


def _conditions(pod: Spec) -> Iterator[tuple[Path, Spec]]:
    """The required conditions on labels, of all terms."""
    if pod.get("affinity"):
        yield from _expressions(required_terms(pod))


def _wishes(pod: Spec) -> Iterator[tuple[Path, Spec]]:
    """The preferred conditions on labels."""
    if pod.get("affinity"):
        preferred = section(section(pod.get("affinity")).get("nodeAffinity")).get(PREFERRED)
        yield from _expressions(
            ((*_WISHES, index, "preference"), section(section(term).get("preference")))
            for index, term in enumerate(preferred or ())
        )


def _expressions(terms: Iterable[tuple[Path, Spec]]) -> Iterator[tuple[Path, Spec]]:
    for way, term in terms:
        for index, expression in enumerate(term.get("matchExpressions") or ()):
            yield (*way, "matchExpressions", index), section(expression)
