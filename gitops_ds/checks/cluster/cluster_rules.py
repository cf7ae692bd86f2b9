"""Rules that look at all objects of a cluster together, and at its nodes where they are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gitops_ds.apimachinery import label_selector
from gitops_ds.checks.advice import pod_security
from gitops_ds.checks.cluster import (
    companions,
    node_capacity,
    node_conflicts,
    node_rules,
    priority_classes,
    references,
)
from gitops_ds.checks.engine import phrases
from gitops_ds.checks.engine.cluster_context import (
    ClusterContext,
    ClusterRule,
    pod_labels,
    pod_spec,
)
from gitops_ds.checks.engine.rule import POD, Violation, items, section
from gitops_ds.model.bundle import Manifest, Requirement
from gitops_ds.model.finding import Severity
from gitops_ds.model.objects import Key

_CONTROLLERS = frozenset(
    (("apps", "DaemonSet"), ("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "ReplicaSet"))
)


def selectors_apart(fleet: ClusterContext) -> Iterator[Violation]:
    """DS104: no controller selects the pods of another one in its namespace; variants of one agent
    may.
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
        exact = next((asked for asked in selector if asked.operator == "In"), None)
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
            more = f" and {len(claimed) - 1} more" if len(claimed) > 1 else ""
            message = f"it also selects the pods of {claimed[0]}{more}: both would claim them"
            yield Violation(("spec", "selector"), message, object=one.key, related=claimed[0])


def _claims(one: Manifest, other: Manifest, selector: Iterable[Requirement]) -> bool:
    siblings = one is other or (one.agent and one.agent == other.agent)
    return not siblings and label_selector.all_match(selector, pod_labels(other))


def known_references(fleet: ClusterContext) -> Iterator[Violation]:
    """DS416: what pods need is in the repository."""
    for manifest in fleet.daemonsets:
        for path, kind, name in references.of(pod_spec(manifest)):
            there = Key("", kind, manifest.key.namespace, name) in fleet.manifests
            if not there and (kind, name) not in references.ALWAYS_THERE:
                message = (
                    f"the repository has no {kind} {manifest.key.namespace}/{name}: where it is "
                    "missing no pod starts"
                )
                yield Violation((*POD, *path), message, object=manifest.key)


def known_keys(fleet: ClusterContext) -> Iterator[Violation]:
    """DS421: a key that a pod can't start without is in the ConfigMap or Secret, where the
    repository has that.

    One without any key is filled by others (an injected bundle of authorities), so nothing is known
    of its keys.
    """
    for manifest in fleet.daemonsets:
        for path, kind, name, wanted in references.keys(pod_spec(manifest)):
            key = Key("", kind, manifest.key.namespace, name)
            there = fleet.manifests.get(key)
            body = there.body if there else {}
            known = {
                one
                for field in ("data", "binaryData", "stringData")
                for one in section(body.get(field))
            }
            if known and wanted not in known:
                hint = (
                    phrases.did_you_mean(wanted, known)
                    or f": it has {phrases.one_of(sorted(known))}"
                )
                yield Violation(
                    (*POD, *path),
                    f"{kind} {name} has no key {wanted}{hint}; no pod starts without it",
                    object=manifest.key,
                    related=key,
                )


def shared_claims(fleet: ClusterContext) -> Iterator[Violation]:
    """DS417: no volume for one node is asked for by the pods of all."""
    for manifest in fleet.daemonsets:
        for path, name in references.claims(pod_spec(manifest)):
            key = Key("", "PersistentVolumeClaim", manifest.key.namespace, name)
            claim = fleet.manifests.get(key)
            modes = items(
                section(section(claim.body if claim else None).get("spec")).get("accessModes")
            )
            if modes and not {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
                message = (
                    f"the claim {name} is {' and '.join(modes)}: one node can have it, on the "
                    "others the pod does not start"
                )
                yield Violation((*POD, *path), message, object=manifest.key, related=key)


def admitted(fleet: ClusterContext) -> Iterator[Violation]:
    """DS516: the namespace takes the pods, where the repository has it."""
    for manifest in fleet.daemonsets:
        key = Key("", "Namespace", "", manifest.key.namespace)
        namespace = fleet.manifests.get(key)
        labels = section(section(namespace.body if namespace else None).get("metadata")).get(
            "labels"
        )
        level = str(section(labels).get(pod_security.ENFORCE) or "")
        found = pod_security.against(level, pod_spec(manifest))
        if found:
            message = (
                f"the namespace enforces {level}, and no pod can be made: it does not take "
                f"{', '.join(found)}"
            )
            yield Violation(POD, message, object=manifest.key, related=key)


_NETWORK: Final = {"cni": Severity.ERROR, "csi": Severity.ERROR, "dns": Severity.ERROR}
_INFO, _WARNING, _ERROR = Severity.INFO, Severity.WARNING, Severity.ERROR

RULES: Final = (
    ClusterRule(
        "DS017",
        _INFO,
        False,
        "an agent has a namespace of its own",
        companions.own_namespace,
        on=False,
    ),
    ClusterRule(
        "DS104", _ERROR, False, "no controller selects the pods of another", selectors_apart
    ),
    ClusterRule(
        "DS106",
        _WARNING,
        False,
        "what belongs to an agent finds its pods",
        companions.companions_match,
        on=False,
    ),
    ClusterRule(
        "DS107",
        _INFO,
        False,
        "no disruption budget for agents",
        companions.budgets_for_others,
        on=False,
    ),
    ClusterRule(
        "DS108",
        _INFO,
        False,
        "something collects the metrics of an agent",
        companions.monitored,
        on=False,
    ),
    ClusterRule(
        "DS205",
        _WARNING,
        False,
        "of nodes that are known, a quarter at most is updated at once",
        node_rules.few_of_its_nodes,
        classes=_NETWORK,
    ),
    ClusterRule(
        "DS206", _WARNING, False, "a rollout ends, and within hours", node_rules.ends_today
    ),
    ClusterRule(
        "DS307",
        _ERROR,
        False,
        "some node has the labels that an agent asks for",
        node_rules.known_labels,
    ),
    ClusterRule(
        "DS309",
        _WARNING,
        False,
        "an agent says which platform it is for",
        node_rules.one_platform,
        on=False,
    ),
    ClusterRule(
        "DS313", _ERROR, False, "priorities are there", priority_classes.known, certain=True
    ),
    ClusterRule(
        "DS316",
        _WARNING,
        False,
        "an agent's priority does not hold it back",
        priority_classes.held_back,
    ),
    ClusterRule(
        "DS416", _WARNING, False, "what pods need is in the repository", known_references, on=False
    ),
    ClusterRule("DS421", _ERROR, False, "keys that pods need are there", known_keys, certain=True),
    ClusterRule(
        "DS417",
        _ERROR,
        False,
        "no volume for one node is asked for on all",
        shared_claims,
        on=False,
    ),
    ClusterRule("DS516", _ERROR, False, "the namespace takes the pods", admitted, on=False),
    ClusterRule(
        "DS601",
        _ERROR,
        False,
        "no two agents take the same port of a node",
        node_conflicts.ports_apart,
    ),
    ClusterRule("DS602", _ERROR, False, "no node runs an agent twice", node_rules.variants_apart),
    ClusterRule(
        "DS603",
        _ERROR,
        False,
        "every node that an agent counts on has it",
        node_rules.variants_everywhere,
    ),
    ClusterRule("DS604", _ERROR, False, "every agent is wanted on some node", node_rules.some_node),
    ClusterRule(
        "DS605", _ERROR, False, "agents have room on their nodes", node_capacity.fits, on=False
    ),
    ClusterRule(
        "DS607",
        _WARNING,
        False,
        "agents leave most of a node to others",
        node_capacity.leaves_room,
        on=False,
    ),
    ClusterRule(
        "DS608",
        _WARNING,
        False,
        "no two agents write to the same path of a node",
        node_conflicts.paths_apart,
        on=False,
    ),
)
