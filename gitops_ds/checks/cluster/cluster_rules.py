"""Rules over all objects of a cluster, and over its nodes if they are known.

PriorityClasses: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gitops_ds.checks.advice import security
from gitops_ds.checks.advice.scheduling import SYSTEM_PRIORITIES
from gitops_ds.checks.cluster import (
    companions,
    node_rules,
    node_sharing,
    references,
    startup_taints,
)
from gitops_ds.checks.engine import phrases
from gitops_ds.checks.engine.contexts import ClusterContext, ClusterRule, pod_labels, pod_spec
from gitops_ds.checks.engine.rule import POD, Violation, advice, certain, items, section
from gitops_ds.core.finding import Severity
from gitops_ds.core.objects import Body, Key, Path
from gitops_ds.core.plain_text import listed
from gitops_ds.core.sources.bundle import Manifest, Requirement
from gitops_ds.kube.apimachinery import label_selector

_PRIORITY_CLASS: Final[Path] = (*POD, "priorityClassName")


def _own_priority_classes(fleet: ClusterContext) -> Mapping[str, tuple[Key, Body]]:
    """The PriorityClasses of the repository, by name."""
    keys = (
        key
        for key in fleet.manifests
        if (key.group, key.kind) == ("scheduling.k8s.io", "PriorityClass")
    )
    return {key.name: (key, fleet.manifests[key].body) for key in keys}


def priority_classes_exist(fleet: ClusterContext) -> Iterator[Violation]:
    """DS313: the PriorityClass does not exist. The API server accepts the DaemonSet and rejects its
    pods.

    Names with the prefix `system-` are reserved by Kubernetes. Other names are checked if the
    classes of the cluster were read, or if the repository defines any; otherwise they are assumed
    to exist.
    """
    own, live = _own_priority_classes(fleet), fleet.priorities
    there = SYSTEM_PRIORITIES.union(own, live)
    for manifest in fleet.daemonsets:
        name = str(pod_spec(manifest).get("priorityClassName") or "")
        if not name or name in there or not (own or live or name.startswith("system-")):
            continue
        whose = (
            "Kubernetes has"
            if name.startswith("system-")
            else "cluster and repository have"
            if live
            else "the repository has"
        )
        choice = SYSTEM_PRIORITIES if name.startswith("system-") else {*own, *live}
        hint = phrases.did_you_mean(name, choice) or f": {whose} {phrases.one_of(sorted(choice))}"
        yield Violation(
            _PRIORITY_CLASS,
            f"PriorityClass {name} not found{hint}; without it no pod can be created",
            object=manifest.key,
        )


def priority_classes_delay_nothing(fleet: ClusterContext) -> Iterator[Violation]:
    """DS316: an agent has a lower priority than pods without a class, or cannot preempt."""
    own = _own_priority_classes(fleet)
    for manifest in fleet.daemonsets:
        name = str(pod_spec(manifest).get("priorityClassName") or "")
        key, body = own.get(name) or (None, fleet.priorities.get(name))
        if body is None:
            continue
        value = body.get("value")
        problems = []
        if isinstance(value, int) and value < 0:
            problems.append(
                f"has the value {value}: pods without a class are scheduled first, and preempt "
                f"this agent"
            )
        if body.get("preemptionPolicy") == "Never":
            problems.append("never preempts: on a full node the agent stays Pending")
        if problems:
            message = f"the PriorityClass {name} {'; it '.join(problems)}"
            yield Violation(_PRIORITY_CLASS, message, object=manifest.key, related=key)


_CONTROLLERS = frozenset(
    (("apps", "DaemonSet"), ("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "ReplicaSet"))
)


def selectors_apart(fleet: ClusterContext) -> Iterator[Violation]:
    """DS104: a selector matches the pods of another controller in the namespace. Variants of one
    agent are ignored.
    """
    controllers = [
        manifest
        for key, manifest in fleet.manifests.items()
        if (key.group, key.kind) in _CONTROLLERS
    ]
    by_label: dict[tuple[str, str, str], list[Manifest]] = {}
    for manifest in controllers:
        for label, value in pod_labels(manifest).items():
            by_label.setdefault((manifest.key.namespace, label, value), []).append(manifest)
    for one in controllers:
        selector = label_selector.of_label_selector(
            section(section(one.body.get("spec")).get("selector"))
        )
        exact = next((one for one in selector if one.operator == "In"), None)
        if exact is None:
            others = [
                manifest
                for manifest in controllers
                if selector and manifest.key.namespace == one.key.namespace
            ]
        else:
            others = [
                there
                for value in exact.values
                for there in by_label.get((one.key.namespace, exact.key, value), ())
            ]
        claimed = sorted({other.key for other in others if _claims(one, other, selector)}, key=str)
        if claimed:
            message = (
                f"the selector also matches the pods of {listed(claimed, 1)}: both controllers "
                "would claim them"
            )
            yield Violation(("spec", "selector"), message, object=one.key, related=claimed[0])


def _claims(one: Manifest, other: Manifest, selector: Iterable[Requirement]) -> bool:
    siblings = one is other or (one.agent and one.agent == other.agent)
    return not siblings and label_selector.all_match(selector, pod_labels(other))


def known_references(fleet: ClusterContext) -> Iterator[Violation]:
    """DS416: objects that the pods require are not in the repository."""
    for manifest in fleet.daemonsets:
        for path, kind, name in references.of(pod_spec(manifest)):
            there = Key("", kind, manifest.key.namespace, name) in fleet.manifests
            if not there and (kind, name) not in references.ALWAYS_THERE:
                message = (
                    f"the repository has no {kind} {manifest.key.namespace}/{name}: without it no "
                    f"pod starts"
                )
                yield Violation((*POD, *path), message, object=manifest.key)


def known_keys(fleet: ClusterContext) -> Iterator[Violation]:
    """DS421: a required key is not in the ConfigMap or Secret of the repository.

    An object without any key is filled by another program, for example with a bundle of
    certificates, so its keys are unknown.
    """
    for manifest in fleet.daemonsets:
        for path, kind, name, expected_key in references.keys(pod_spec(manifest)):
            key = Key("", kind, manifest.key.namespace, name)
            there = fleet.manifests.get(key)
            body = there.body if there else {}
            keys = {
                one
                for field in ("data", "binaryData", "stringData")
                for one in section(body.get(field))
            }
            if keys and expected_key not in keys:
                hint = (
                    phrases.did_you_mean(expected_key, keys)
                    or f": it has {phrases.one_of(sorted(keys))}"
                )
                yield Violation(
                    (*POD, *path),
                    f"{kind} {name} has no key {expected_key}{hint}; no pod starts without it",
                    object=manifest.key,
                    related=key,
                )


def shared_claims(fleet: ClusterContext) -> Iterator[Violation]:
    """DS417: the pods of all nodes use a volume for a single node."""
    for manifest in fleet.daemonsets:
        for path, name in references.claims(pod_spec(manifest)):
            key = Key("", "PersistentVolumeClaim", manifest.key.namespace, name)
            claim = fleet.manifests.get(key)
            modes = items(
                section(section(claim.body if claim else None).get("spec")).get("accessModes")
            )
            if modes and not {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
                message = (
                    f"the claim {name} is {' and '.join(modes)}: only one node can use it, and "
                    f"pods on other nodes do not start"
                )
                yield Violation((*POD, *path), message, object=manifest.key, related=key)


def admitted(fleet: ClusterContext) -> Iterator[Violation]:
    """DS516: the pods violate the Pod Security level of their namespace, if it is in the
    repository.
    """
    for manifest in fleet.daemonsets:
        key = Key("", "Namespace", "", manifest.key.namespace)
        namespace = fleet.manifests.get(key)
        labels = section(section(namespace.body if namespace else None).get("metadata")).get(
            "labels"
        )
        level = str(section(labels).get(security.ENFORCE) or "")
        fields = security.against(level, pod_spec(manifest))
        if fields:
            message = (
                f"the namespace enforces the level {level}, so that no pod can be created; "
                f"violations: "
                f"{', '.join(fields)}"
            )
            yield Violation(POD, message, object=manifest.key, related=key)


_INFO, _WARNING, _ERROR = Severity.INFO, Severity.WARNING, Severity.ERROR

RULES: Final[tuple[ClusterRule, ...]] = (
    advice("DS017", _INFO, "agent shares its namespace", companions.own_namespace, on=False),
    advice("DS018", _WARNING, "cluster-scoped object has a namespace", companions.without_scope),
    advice("DS104", _ERROR, "selector matches the pods of another controller", selectors_apart),
    advice(
        "DS106",
        _WARNING,
        "selector of a companion object matches no pods",
        companions.companions_match,
        on=False,
    ),
    advice(
        "DS107",
        _INFO,
        "PodDisruptionBudget has no effect on a DaemonSet",
        companions.budgets_for_others,
        on=False,
    ),
    advice("DS108", _INFO, "metrics of the agent are not scraped", companions.monitored, on=False),
    advice(
        "DS205",
        _WARNING,
        "maxUnavailable covers more than a quarter of the nodes in the snapshot",
        node_rules.few_of_its_nodes,
        cni=_ERROR,
        csi=_ERROR,
        dns=_ERROR,
    ),
    advice("DS206", _WARNING, "rollout takes too long or cannot finish", node_rules.ends_today),
    advice("DS307", _ERROR, "no node has the required labels", node_rules.known_labels),
    advice(
        "DS309",
        _WARNING,
        "nodes have several platforms and the agent selects none",
        node_rules.one_platform,
        on=False,
    ),
    certain("DS313", "PriorityClass not found", priority_classes_exist),
    advice(
        "DS316",
        _WARNING,
        "PriorityClass is below other pods or never preempts",
        priority_classes_delay_nothing,
    ),
    advice(
        "DS324",
        _WARNING,
        "required agent uses a workload that starts after it",
        startup_taints.start_without_each_other,
    ),
    advice("DS325", _INFO, "no pool has the startup taint", startup_taints.some_pool_has_the_taint),
    advice(
        "DS416",
        _WARNING,
        "referenced object not found in the repository",
        known_references,
        on=False,
    ),
    certain("DS421", "key not found in ConfigMap or Secret", known_keys),
    advice(
        "DS417", _ERROR, "volume for a single node is used on all nodes", shared_claims, on=False
    ),
    advice("DS516", _ERROR, "pod violates the namespace's Pod Security level", admitted, on=False),
    advice("DS601", _ERROR, "host port conflict between agents", node_sharing.ports_apart),
    advice("DS602", _ERROR, "agent runs twice on a node", node_rules.variants_apart),
    advice(
        "DS603", _ERROR, "expected node has no pod of the agent", node_rules.variants_everywhere
    ),
    advice("DS604", _ERROR, "agent matches no node", node_rules.some_node),
    advice("DS605", _ERROR, "agent does not fit on its nodes", node_sharing.fits, on=False),
    advice("DS607", _WARNING, "agents use most of a node", node_sharing.leaves_room, on=False),
    advice(
        "DS608", _WARNING, "agents write to the same host path", node_sharing.paths_apart, on=False
    ),
)
