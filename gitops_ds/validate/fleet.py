"""Rules that look at all objects of a cluster together, and at its nodes where they are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Final

from gitops_ds.kinds import capacity, eligibility, requirements
from gitops_ds.kinds.eligibility import Placement
from gitops_ds.model.bundle import Manifest, Requirement
from gitops_ds.model.finding import Severity
from gitops_ds.model.live import Node
from gitops_ds.model.objects import Key, Path
from gitops_ds.validate import pod_security, references, words
from gitops_ds.validate.rule import POD, items, section
from gitops_ds.validate.scheduling_rules import SYSTEM_PRIORITIES


@dataclass(frozen=True)
class Fleet:
    """The manifests of one cluster, and its nodes; None where nobody knows them."""

    manifests: Mapping[Key, Manifest]
    nodes: Sequence[Node] | None = None

    @cached_property
    def daemonsets(self) -> tuple[Manifest, ...]:
        """Those that make pods on nodes."""
        return tuple(manifest for key, manifest in self.manifests.items() if (key.group, key.kind) == ("apps", "DaemonSet"))

    @cached_property
    def eligible(self) -> Mapping[Key, frozenset[str]]:
        """By DaemonSet, the names of the nodes that shall run it; empty where no nodes are known."""
        found = {}
        for manifest in self.daemonsets:
            placer = eligibility.read(section(section(manifest.body.get("spec")).get("template")))
            found[manifest.key] = frozenset(node.name for node in self.nodes or () if placer.place(node) is Placement.RUN)
        return found


FleetCheck = Callable[[Fleet], Iterable[tuple[Key, Path, str]]]


@dataclass(frozen=True, slots=True)
class FleetRule:
    """A rule over a whole fleet, all of them advice. `on`: it looks without being asked."""

    id: str
    severity: Severity
    summary: str
    check: FleetCheck
    on: bool = True


_CONTROLLERS = frozenset((("apps", "DaemonSet"), ("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "ReplicaSet")))


def selectors_apart(fleet: Fleet) -> Iterator[tuple[Key, Path, str]]:
    """DS104: no controller selects the pods of another one in its namespace; variants of one agent may."""
    controllers = [manifest for key, manifest in fleet.manifests.items() if (key.group, key.kind) in _CONTROLLERS]
    by_label: dict[tuple[str, str, str], list[Manifest]] = {}
    for manifest in controllers:
        for label, value in _labels(manifest).items():
            by_label.setdefault((manifest.key.namespace, label, value), []).append(manifest)
    for one in controllers:
        selector = requirements.of_label_selector(section(section(one.body.get("spec")).get("selector")))
        exact = next((asked for asked in selector if asked.operator == "In"), None)
        if exact is None:
            others = [manifest for manifest in controllers if selector and manifest.key.namespace == one.key.namespace]
        else:
            others = [there for value in exact.values for there in by_label.get((one.key.namespace, exact.key, value), ())]
        claimed = sorted({str(other.key) for other in others if _claims(one, other, selector)})
        if claimed:
            more = f" and {len(claimed) - 1} more" if len(claimed) > 1 else ""
            yield one.key, ("spec", "selector"), f"it also selects the pods of {claimed[0]}{more}: both would claim them"


def _claims(one: Manifest, other: Manifest, selector: Iterable[Requirement]) -> bool:
    siblings = one is other or (one.agent and one.agent == other.agent)
    return not siblings and requirements.all_match(selector, _labels(other))


def _labels(manifest: Manifest) -> Mapping[str, str]:
    template = section(section(manifest.body.get("spec")).get("template"))
    labels = section(section(template.get("metadata")).get("labels"))
    return {str(key): str(value) for key, value in labels.items()}


def ports_apart(fleet: Fleet) -> Iterator[tuple[Key, Path, str]]:
    """DS601: no two agents take the same port of the same node."""
    ports = {manifest.key: tuple(capacity.host_ports(_pod_spec(manifest))) for manifest in fleet.daemonsets}
    with_ports = [manifest for manifest in fleet.daemonsets if ports[manifest.key]]
    for one, other in combinations(with_ports, 2):
        shared = next((port for port in ports[one.key] if any(capacity.clash(port, their) for their in ports[other.key])), None)
        if shared is None:
            continue
        nodes = sorted(fleet.eligible[one.key] & fleet.eligible[other.key])
        if nodes:
            where = f"{len(nodes)} node{'s' if len(nodes) != 1 else ''} ({', '.join(nodes[:3])}{', …' if len(nodes) > 3 else ''})"
            message = f"{other.key} takes the same port {shared[2]}/{shared[0]} of {where}: there one of the two stays Pending"
            yield one.key, ("spec", "template", "spec", "containers"), message


def some_node(fleet: Fleet) -> Iterator[tuple[Key, Path, str]]:
    """DS604: every agent is wanted on some node."""
    if not fleet.nodes:
        return
    for manifest in fleet.daemonsets:
        if not fleet.eligible[manifest.key]:
            message = f"none of the {len(fleet.nodes)} known nodes may run it: its rollout succeeds with no pod at all"
            yield manifest.key, ("spec", "template", "spec"), message


def known_priority(fleet: Fleet) -> Iterator[tuple[Key, Path, str]]:
    """DS313: the PriorityClass is there, or every pod is refused, while the DaemonSet itself is taken.

    Names that begin with `system-` are Kubernetes' own; others are only told where the repository has such classes at all, for else
    they are made elsewhere.
    """
    own = {key.name for key in fleet.manifests if (key.group, key.kind) == ("scheduling.k8s.io", "PriorityClass")}
    for manifest in fleet.daemonsets:
        name = str(_pod_spec(manifest).get("priorityClassName") or "")
        if not name or name in own or name in SYSTEM_PRIORITIES or not (own or name.startswith("system-")):
            continue
        known = sorted(SYSTEM_PRIORITIES if name.startswith("system-") else own)
        whose = "Kubernetes has" if name.startswith("system-") else "the repository has"
        hint = words.did_you_mean(name, known) or f": {whose} {words.one_of(known)}"
        message = f"there is no PriorityClass {name} here{hint}; where it is missing no pod can be made"
        yield manifest.key, ("spec", "template", "spec", "priorityClassName"), message


def known_references(fleet: Fleet) -> Iterator[tuple[Key, Path, str]]:
    """DS416: what pods need is in the repository."""
    for manifest in fleet.daemonsets:
        for path, kind, name in references.of(_pod_spec(manifest)):
            there = Key("", kind, manifest.key.namespace, name) in fleet.manifests
            if not there and (kind, name) not in references.ALWAYS_THERE:
                message = f"the repository has no {kind} {manifest.key.namespace}/{name}: where it is missing no pod starts"
                yield manifest.key, (*POD, *path), message


def shared_claims(fleet: Fleet) -> Iterator[tuple[Key, Path, str]]:
    """DS417: no volume for one node is asked for by the pods of all."""
    for manifest in fleet.daemonsets:
        for path, name in references.claims(_pod_spec(manifest)):
            claim = fleet.manifests.get(Key("", "PersistentVolumeClaim", manifest.key.namespace, name))
            modes = items(section(section(claim.body if claim else None).get("spec")).get("accessModes"))
            if modes and not {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
                message = f"the claim {name} is {' and '.join(modes)}: one node can have it, on the others the pod does not start"
                yield manifest.key, (*POD, *path), message


def admitted(fleet: Fleet) -> Iterator[tuple[Key, Path, str]]:
    """DS516: the namespace takes the pods, where the repository has it."""
    for manifest in fleet.daemonsets:
        namespace = fleet.manifests.get(Key("", "Namespace", "", manifest.key.namespace))
        labels = section(section(namespace.body if namespace else None).get("metadata")).get("labels")
        level = str(section(labels).get(pod_security.ENFORCE) or "")
        found = pod_security.against(level, _pod_spec(manifest))
        if found:
            message = f"the namespace enforces {level}, and no pod can be made: it does not take {', '.join(found)}"
            yield manifest.key, POD, message


def _pod_spec(manifest: Manifest) -> Mapping[str, object]:
    return section(section(section(manifest.body.get("spec")).get("template")).get("spec"))


RULES: Final = (
    FleetRule("DS104", Severity.ERROR, "no controller selects the pods of another", selectors_apart),
    FleetRule("DS313", Severity.ERROR, "priorities are there", known_priority),
    FleetRule("DS416", Severity.WARNING, "what pods need is in the repository", known_references, on=False),
    FleetRule("DS417", Severity.ERROR, "no volume for one node is asked for on all", shared_claims, on=False),
    FleetRule("DS516", Severity.ERROR, "the namespace takes the pods", admitted, on=False),
    FleetRule("DS601", Severity.ERROR, "no two agents take the same port of a node", ports_apart),
    FleetRule("DS604", Severity.ERROR, "every agent is wanted on some node", some_node),
)
