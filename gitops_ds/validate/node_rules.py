"""Rules about an agent's nodes: how many are updated at once, and which are missed, taken twice, or meant by nobody."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, Final

from gitops_ds.kinds import crowds, requirements, rollout_numbers
from gitops_ds.model.bundle import Alternatives, Manifest
from gitops_ds.model.census import Census
from gitops_ds.model.daemonset import RollingUpdate, Share
from gitops_ds.model.finding import Fix, Mend
from gitops_ds.model.live import Node
from gitops_ds.model.objects import Key, Path
from gitops_ds.validate import images, rollout_rules, words
from gitops_ds.validate.rule import POD, class_of, items, section
from gitops_ds.validate.whole import Fleet, FleetTold, pod_labels, pod_spec

_MAX_UNAVAILABLE: Final[Path] = ("spec", "updateStrategy", "rollingUpdate", "maxUnavailable")
_TENTH: Final = Fix("maxUnavailable: 10%", (Mend(_MAX_UNAVAILABLE, "10%"),))
_MOST_AT_ONCE: Final = 25  # per cent of the nodes
# What a pod is taken to need where nobody measured it, in seconds (as in core/rehearsal.py), and how long a rollout may take.
_START, _STOP, _LONGEST = 30, 5, 4 * 3600
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS: Final[Path] = (*POD, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")


def few_of_its_nodes(fleet: Fleet) -> Iterator[FleetTold]:
    """DS205, where the nodes are known: at most a quarter of them at once, of a network, storage or DNS agent a tenth."""
    for manifest, nodes in fleet.placed():
        strategy, kind = _strategy(manifest), class_of(manifest.body)
        if strategy is None or not nodes or fleet.census is None:
            continue
        told_without_nodes = rollout_rules.UPDATE_TOGETHER_AT_MOST.get(kind, rollout_rules.ALL_BUT_THE_LAST)
        share, most = strategy.max_unavailable, rollout_rules.UPDATE_TOGETHER_AT_MOST.get(kind, _MOST_AT_ONCE)
        if share.percent and not most < share.amount <= told_without_nodes:
            continue
        at_once = share.of(len(nodes))
        if at_once > 1 and at_once * 100 > most * len(nodes):
            message = (
                f"maxUnavailable {_shown(share)} takes the agent from {min(at_once, len(nodes)):,} of its"
                f" {len(nodes):,} nodes at once, {min(at_once * 100 // len(nodes), 100)}%; write {min(most, 10)}% or less"
            )
            yield manifest.key, _MAX_UNAVAILABLE, message, _TENTH


def ends_today(fleet: Fleet) -> Iterator[FleetTold]:
    """DS206: a rollout ends, and within hours."""
    for manifest, nodes in fleet.placed():
        strategy = _strategy(manifest)
        if strategy is None or not nodes or fleet.census is None:
            continue
        unavailable, surge = rollout_numbers.limits(strategy, len(nodes))
        broken = {node.name for node in fleet.census.nodes if not node.ready and node.name in nodes}
        if broken and not surge and unavailable <= len(broken):
            message = (
                f"maxUnavailable {_shown(strategy.max_unavailable)} is used up by {crowds.said(broken, fleet.census)}, not ready:"
                " no update would go on; write more"
            )
            yield manifest.key, _MAX_UNAVAILABLE, message, _TENTH
            continue
        ready = section(manifest.body.get("spec")).get("minReadySeconds") or 0
        seconds = -(-len(nodes) // (surge or unavailable)) * (_START + ready + (0 if surge else _STOP))
        if seconds > _LONGEST:
            message = (
                f"{surge or unavailable} at a time, {len(nodes):,} nodes take about {seconds / 3600:.0f} hours"
                f" (if a pod takes {_START} s to start and {_STOP} s to stop); write more, 10%"
            )
            yield manifest.key, _MAX_UNAVAILABLE if not surge else (*_MAX_UNAVAILABLE[:-1], "maxSurge"), message


def _strategy(manifest: Manifest) -> RollingUpdate | None:
    strategy = rollout_numbers.strategy(section(manifest.body.get("spec")))
    return strategy if isinstance(strategy, RollingUpdate) else None


def _shown(share: Share) -> str:
    return f"{share.amount}%" if share.percent else str(share.amount)


def known_labels(fleet: Fleet) -> Iterator[FleetTold]:
    """DS307: an agent that no node has the labels for; which label it is."""
    census = fleet.census
    if census is None:
        return
    for manifest in fleet.daemonsets:
        placer = fleet.placers[manifest.key]
        if any(placer.selects(group[0]) for group in fleet.groups) or any(map(placer.selects, census.nodes)):
            continue
        for path, key, values in _asked(pod_spec(manifest)):
            complaint = _nobody_has(key, values, census)
            if complaint:
                yield manifest.key, path, complaint


def _asked(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """The labels that a node must have, each with the values that will do (none: any)."""
    for key, value in section(spec.get("nodeSelector")).items():
        yield (*POD, "nodeSelector", key), key, (str(value),)
    affinity = section(section(spec.get("affinity")).get("nodeAffinity"))
    for term, body in enumerate(items(section(affinity.get(_REQUIRED)).get("nodeSelectorTerms"))):
        for index, entry in enumerate(items(body.get("matchExpressions"))):
            asked = requirements.from_body(entry)
            if asked.operator in ("In", "Exists"):
                yield (*_TERMS, term, "matchExpressions", index), asked.key, asked.values


def _nobody_has(key: str, values: tuple[str, ...], census: Census) -> str:
    held = {node.labels[key] for node in census.nodes if key in node.labels}
    if not held:
        known = {label for node in census.nodes for label in node.labels}
        hint = words.did_you_mean(key, known)
        return "" if census.declared and key not in census.keys else f"none of the {_known(census)} has the label {key}{hint}"
    if not values or held & set(values):
        return ""
    hint = words.did_you_mean(values[0], held) or f": known are {words.one_of(sorted(held)[:5])}"
    return f"none of the {_known(census)} has the label {key} with the value {words.one_of(values)}{hint}"


def _known(census: Census) -> str:
    return f"{len(census.nodes):,} {'declared' if census.declared else 'known'} nodes"


def one_platform(fleet: Fleet) -> Iterator[FleetTold]:
    """DS309: an agent says which system and processor it is for, where its nodes have several."""
    census = fleet.census
    if census is None:
        return
    labels = {node.name: node.labels for node in census.nodes}
    for manifest, nodes in fleet.placed():
        asked = crowds.keys_of([fleet.placers[manifest.key]])
        for key, what in (("kubernetes.io/os", "system"), ("kubernetes.io/arch", "processor")):
            kinds = sorted({labels[name][key] for name in nodes if key in labels[name]})
            if len(kinds) > 1 and key not in asked:
                message = f"its nodes are {' and '.join(kinds)}: say which {what} it is for with a nodeSelector {key}"
                yield manifest.key, (*POD, "nodeSelector"), message


def variants_apart(fleet: Fleet) -> Iterator[FleetTold]:
    """DS602: no node runs an agent twice, as two of its variants."""
    if fleet.census is None:
        return
    for one, other in _variants(fleet):
        nodes = fleet.eligible[one.key] & fleet.eligible[other.key]
        if nodes:
            where = crowds.said(nodes, fleet.census)
            message = f"{other.key} is the same agent, and both take {where}: leave them out of one, with NotIn in its affinity"
            yield one.key, POD, message


def _variants(fleet: Fleet) -> Iterable[tuple[Manifest, Manifest]]:
    """Pairs of DaemonSets that run the same image as the same agent: of one folder, or of one name label in a namespace."""
    found: dict[tuple[object, ...], list[Manifest]] = {}
    for manifest, _ in fleet.placed():
        programs, name = _programs(manifest), pod_labels(manifest).get("app.kubernetes.io/name", "")
        if manifest.agent:
            found.setdefault((manifest.agent, programs), []).append(manifest)
        if name:
            found.setdefault((manifest.key.namespace, name, programs), []).append(manifest)
    pairs = (pair for members in found.values() for pair in combinations(members, 2))
    return {(one.key, other.key): (one, other) for one, other in pairs}.values()


def _programs(manifest: Manifest) -> tuple[str, ...]:
    parsed = (images.parse(str(one.get("image") or "")) for one in items(pod_spec(manifest).get("containers")))
    return tuple(sorted(image.repository for image in parsed))


def variants_everywhere(fleet: Fleet) -> Iterator[FleetTold]:
    """DS603: each node that an agent counts on has one of its variants."""
    if fleet.census is None:
        return
    for agent, (wanted, never) in fleet.expected.items():
        members = [manifest for manifest in fleet.daemonsets if manifest.agent == agent]
        if not members or any(member.key in fleet.unknown for member in members):
            continue
        taken = frozenset[str]().union(*(fleet.eligible[member.key] for member in members))
        counted = (node for node in fleet.census.nodes if _meets(node, wanted) and not _meets(node, (*never, *fleet.ignored)))
        missed = [node.name for node in counted if node.name not in taken]
        if missed:
            where = crowds.said(missed, fleet.census)
            message = f"agent {agent} counts on {where}, and no variant may run there: mend the variants, or tolerate the taints"
            yield members[-1].key, POD, message


def _meets(node: Node, terms: Alternatives) -> bool:
    return any(requirements.all_match(term, node.labels) for term in terms)


def some_node(fleet: Fleet) -> Iterator[tuple[Key, Path, str]]:
    """DS604: every agent is wanted on some node."""
    if fleet.census is None:
        return
    for manifest, nodes in fleet.placed():
        if not nodes:
            message = f"none of the {_known(fleet.census)} may run it: its rollout succeeds with no pod at all"
            yield manifest.key, POD, message
