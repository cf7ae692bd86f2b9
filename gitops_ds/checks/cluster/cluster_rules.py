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
from gitops_ds.checks.engine.rule import POD, Violation, items, rule, rules_in, section
from gitops_ds.core.finding import Severity, advice, certain
from gitops_ds.core.objects import Body, Key, Path
from gitops_ds.core.plain_text import listed
from gitops_ds.core.sources.bundle import Manifest, Requirement
from gitops_ds.kube.apimachinery import label_selector

_PRIORITY_CLASS: Final[Path] = (*POD, "priorityClassName")


def _own_priority_classes(cluster: ClusterContext) -> Mapping[str, tuple[Key, Body]]:
    """The PriorityClasses of the repository, by name."""
    keys = (
        key
        for key in cluster.manifests
        if (key.group, key.kind) == ("scheduling.k8s.io", "PriorityClass")
    )
    return {key.name: (key, cluster.manifests[key].body) for key in keys}


@rule(certain("DS313", "PriorityClass not found"))
def priority_classes_exist(cluster: ClusterContext) -> Iterator[Violation]:
    """The PriorityClass does not exist. The API server accepts the DaemonSet and rejects its
    pods.

    Names with the prefix `system-` are reserved by Kubernetes. Other names are checked if the
    classes of the cluster were read, or if the repository defines any; otherwise they are assumed
    to exist.
    """
    own, live = _own_priority_classes(cluster), cluster.priorities
    there = SYSTEM_PRIORITIES.union(own, live)
    for manifest in cluster.daemonsets:
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


@rule(advice("DS316", Severity.WARNING, "PriorityClass is below other pods or never preempts"))
def priority_classes_delay_nothing(cluster: ClusterContext) -> Iterator[Violation]:
    """An agent has a lower priority than pods without a class, or cannot preempt."""
    own = _own_priority_classes(cluster)
    for manifest in cluster.daemonsets:
        name = str(pod_spec(manifest).get("priorityClassName") or "")
        key, body = own.get(name) or (None, cluster.priorities.get(name))
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


@rule(advice("DS104", Severity.ERROR, "selector matches the pods of another controller"))
def selectors_apart(cluster: ClusterContext) -> Iterator[Violation]:
    """A selector matches the pods of another controller in the namespace. Variants of one
    agent are ignored.
    """
    controllers = [
        manifest
        for key, manifest in cluster.manifests.items()
        if (key.group, key.kind) in _CONTROLLERS
    ]
    by_label: dict[tuple[str, str, str], list[Manifest]] = {}
    for manifest in controllers:
        for label, value in pod_labels(manifest).items():
            by_label.setdefault((manifest.key.namespace, label, value), []).append(manifest)
    for controller in controllers:
        selector = label_selector.of_label_selector(
            section(section(controller.body.get("spec")).get("selector"))
        )
        exact = next(
            (requirement for requirement in selector if requirement.operator == "In"), None
        )
        if exact is None:
            others = [
                manifest
                for manifest in controllers
                if selector and manifest.key.namespace == controller.key.namespace
            ]
        else:
            others = [
                there
                for value in exact.values
                for there in by_label.get((controller.key.namespace, exact.key, value), ())
            ]
        claimed = sorted(
            {other.key for other in others if _claims(controller, other, selector)}, key=str
        )
        if claimed:
            message = (
                f"the selector also matches the pods of {listed(claimed, 1)}: both controllers "
                "would claim them"
            )
            yield Violation(
                ("spec", "selector"), message, object=controller.key, related=claimed[0]
            )


def _claims(one: Manifest, other: Manifest, selector: Iterable[Requirement]) -> bool:
    siblings = one is other or (one.agent and one.agent == other.agent)
    return not siblings and label_selector.all_match(selector, pod_labels(other))


@rule(advice("DS416", Severity.WARNING, "referenced object not found in the repository", on=False))
def known_references(cluster: ClusterContext) -> Iterator[Violation]:
    """Objects that the pods require are not in the repository."""
    for manifest in cluster.daemonsets:
        for path, kind, name in references.of(pod_spec(manifest)):
            there = Key("", kind, manifest.key.namespace, name) in cluster.manifests
            if not there and (kind, name) not in references.ALWAYS_THERE:
                message = (
                    f"the repository has no {kind} {manifest.key.namespace}/{name}: without it no "
                    f"pod starts"
                )
                yield Violation((*POD, *path), message, object=manifest.key)


@rule(certain("DS421", "key not found in ConfigMap or Secret"))
def known_keys(cluster: ClusterContext) -> Iterator[Violation]:
    """A required key is not in the ConfigMap or Secret of the repository.

    An object without any key is filled by another program, for example with a bundle of
    certificates, so its keys are unknown.
    """
    for manifest in cluster.daemonsets:
        for path, kind, name, expected_key in references.keys(pod_spec(manifest)):
            key = Key("", kind, manifest.key.namespace, name)
            there = cluster.manifests.get(key)
            body = there.body if there else {}
            keys = {
                entry
                for field in ("data", "binaryData", "stringData")
                for entry in section(body.get(field))
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


@rule(advice("DS417", Severity.ERROR, "volume for a single node is used on all nodes", on=False))
def shared_claims(cluster: ClusterContext) -> Iterator[Violation]:
    """The pods of all nodes use a volume for a single node."""
    for manifest in cluster.daemonsets:
        for path, name in references.claims(pod_spec(manifest)):
            key = Key("", "PersistentVolumeClaim", manifest.key.namespace, name)
            claim = cluster.manifests.get(key)
            modes = items(
                section(section(claim.body if claim else None).get("spec")).get("accessModes")
            )
            if modes and not {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
                message = (
                    f"the claim {name} is {' and '.join(modes)}: only one node can use it, and "
                    f"pods on other nodes do not start"
                )
                yield Violation((*POD, *path), message, object=manifest.key, related=key)


@rule(advice("DS516", Severity.ERROR, "pod violates the namespace's Pod Security level", on=False))
def admitted(cluster: ClusterContext) -> Iterator[Violation]:
    """The pods violate the Pod Security level of their namespace, if it is in the repository."""
    for manifest in cluster.daemonsets:
        key = Key("", "Namespace", "", manifest.key.namespace)
        namespace = cluster.manifests.get(key)
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


RULES: Final[tuple[ClusterRule, ...]] = rules_in(
    globals(), *map(vars, (companions, node_rules, node_sharing, startup_taints))
)
