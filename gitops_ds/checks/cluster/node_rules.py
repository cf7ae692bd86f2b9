"""Rules about the nodes of an agent: how many are updated at once, and which have no agent or
two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, Final

from gitops_ds.checks.advice import images, rollout
from gitops_ds.checks.engine import phrases
from gitops_ds.checks.engine.contexts import ClusterContext, pod_labels, pod_spec
from gitops_ds.checks.engine.rule import POD, Violation, class_of, items, rule, section
from gitops_ds.core.daemonset import RollingUpdate, Share
from gitops_ds.core.finding import Fix, Mend, Severity, advice
from gitops_ds.core.live import Census, Node
from gitops_ds.core.objects import Path
from gitops_ds.core.plain_text import counted
from gitops_ds.core.sources.bundle import Alternatives, Manifest
from gitops_ds.kube.apimachinery import daemonsets, label_selector, node_pools
from gitops_ds.source.rules import NO_NODE

_MAX_UNAVAILABLE: Final[Path] = ("spec", "updateStrategy", "rollingUpdate", "maxUnavailable")
_MAX_SURGE: Final[Path] = (*_MAX_UNAVAILABLE[:-1], "maxSurge")
_TENTH: Final = "10%"
_MOST_AT_ONCE: Final = 25  # per cent of the nodes
# The assumed times of a pod without measurements (as in rollout_forecast), and the accepted
# duration of a rollout, in seconds.
_START, _STOP, _LONGEST = 30, 5, 4 * 3600
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS: Final[Path] = (*POD, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")


@rule(
    advice(
        "DS205",
        Severity.WARNING,
        "maxUnavailable covers more than a quarter of the nodes in the snapshot",
        classes=dict.fromkeys(("cni", "csi", "dns"), Severity.ERROR),
    )
)
def few_of_its_nodes(cluster: ClusterContext) -> Iterator[Violation]:
    """If the nodes are known: maxUnavailable covers more than a quarter of them, or a tenth
    for an agent of network, storage or DNS.
    """
    for manifest, nodes in cluster.placed():
        strategy, kind = _strategy(manifest), class_of(manifest.body)
        if strategy is None or not nodes or cluster.census is None:
            continue
        told_without_nodes = rollout.UPDATE_TOGETHER_AT_MOST.get(kind, rollout.ALL_BUT_THE_LAST)
        share, most = (
            strategy.max_unavailable,
            rollout.UPDATE_TOGETHER_AT_MOST.get(kind, _MOST_AT_ONCE),
        )
        if share.percent and not most < share.amount <= told_without_nodes:
            continue
        at_once = share.of(len(nodes))
        if at_once > 1 and at_once * 100 > most * len(nodes):
            message = (
                f"maxUnavailable {_shown(share)} removes the agent from "
                f"{min(at_once, len(nodes)):,} of its"
                f" {counted(len(nodes), 'node')} at once, "
                f"{min(at_once * 100 // len(nodes), 100)}%; write {min(most, 10)}% or less"
            )
            yield Violation(
                _MAX_UNAVAILABLE,
                message,
                object=manifest.key,
                fix=_written(_MAX_UNAVAILABLE, _TENTH),
            )


def _written(path: Path, value: str | int) -> Fix:
    return Fix(f"{path[-1]}: {value}", (Mend(path, value),))


@rule(advice("DS206", Severity.WARNING, "rollout takes too long or cannot finish"))
def ends_today(cluster: ClusterContext) -> Iterator[Violation]:
    """A rollout that cannot finish, or takes hours."""
    for manifest, nodes in cluster.placed():
        strategy = _strategy(manifest)
        if strategy is None or not nodes or cluster.census is None:
            continue
        unavailable, surge = daemonsets.limits(strategy, len(nodes))
        broken = {
            node.name for node in cluster.census.nodes if not node.ready and node.name in nodes
        }
        if broken and not surge and unavailable <= len(broken):
            message = (
                f"maxUnavailable {_shown(strategy.max_unavailable)} is used up by "
                f"{node_pools.summary(broken, cluster.census)}, which are not ready: no update "
                f"would continue; increase it"
            )
            enough = _enough(manifest, len(nodes), len(broken))
            fix = _written(_MAX_UNAVAILABLE, enough) if enough else None
            yield Violation(_MAX_UNAVAILABLE, message, fix, object=manifest.key)
            continue
        ready = section(manifest.body.get("spec")).get("minReadySeconds") or 0
        seconds = -(-len(nodes) // (surge or unavailable)) * (
            _START + ready + (0 if surge else _STOP)
        )
        if seconds > _LONGEST:
            message = (
                f"{surge or unavailable} at a time, "
                f"{counted(len(nodes), 'node takes', 'nodes take')} about"
                f" {seconds / 3600:.0f} hours (if a pod takes {_START} s to start and {_STOP} s to "
                f"stop); increase it to 10%"
            )
            path = _MAX_SURGE if surge else _MAX_UNAVAILABLE
            quicker = len(nodes) > 10 * (surge or unavailable)
            yield (
                Violation(path, message, object=manifest.key, fix=_written(path, _TENTH))
                if quicker
                else Violation(path, message, object=manifest.key)
            )


def _enough(manifest: Manifest, nodes: int, broken: int) -> str | int | None:
    """A maxUnavailable above the number of nodes that are not ready, within the limit of DS205;
    None without one.
    """
    if nodes > 10 * broken:
        return _TENTH
    most = rollout.UPDATE_TOGETHER_AT_MOST.get(class_of(manifest.body), _MOST_AT_ONCE)
    return broken + 1 if (broken + 1) * 100 <= most * nodes else None


def _strategy(manifest: Manifest) -> RollingUpdate | None:
    strategy = daemonsets.strategy(section(manifest.body.get("spec")))
    return strategy if isinstance(strategy, RollingUpdate) else None


def _shown(share: Share) -> str:
    return f"{share.amount}%" if share.percent else str(share.amount)


@rule(advice("DS307", Severity.ERROR, "no node has the required labels"))
def known_labels(cluster: ClusterContext) -> Iterator[Violation]:
    """No node has the labels of an agent; reports the label at fault."""
    census = cluster.census
    if census is None:
        return
    for manifest in cluster.daemonsets:
        placer = cluster.placers[manifest.key]
        if any(placer.selects(group[0]) for group in cluster.groups) or any(
            map(placer.selects, census.nodes)
        ):
            continue
        spec = pod_spec(manifest)
        for path, key, values in _required_labels(spec):
            message = _missing_label(key, values, census)
            if message:
                fix = _meant(path, key, values, census)
                taken = (
                    path[-2] == "nodeSelector"
                    and fix
                    and fix.mends[0].key in section(spec.get("nodeSelector"))
                )
                yield Violation(path, message, None if taken else fix, object=manifest.key)


def _meant(path: Path, key: str, values: tuple[str, ...], census: Census) -> Fix | None:
    """The similar label or value of some node."""
    held = {node.labels[key] for node in census.nodes if key in node.labels}
    by_name = path[-2] == "nodeSelector"
    if held:
        value = phrases.nearest(values[0], held) if len(values) == 1 else None
        return (
            Fix(
                f"require {key}: {value}", (Mend(path if by_name else (*path, "values", 0), value),)
            )
            if value
            else None
        )
    name = phrases.nearest(key, {label for node in census.nodes for label in node.labels})
    mend = Mend(path, key=name or "") if by_name else Mend((*path, "key"), name)
    return Fix(f"require {name}", (mend,)) if name else None


def _required_labels(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """The required labels of a node, each with its allowed values (empty: any)."""
    for key, value in section(spec.get("nodeSelector")).items():
        yield (*POD, "nodeSelector", key), key, (str(value),)
    affinity = section(section(spec.get("affinity")).get("nodeAffinity"))
    for term, body in enumerate(items(section(affinity.get(_REQUIRED)).get("nodeSelectorTerms"))):
        for index, entry in enumerate(items(body.get("matchExpressions"))):
            requirement = label_selector.from_body(entry)
            if requirement.operator in ("In", "Exists"):
                yield (
                    (*_TERMS, term, "matchExpressions", index),
                    requirement.key,
                    requirement.values,
                )


def _missing_label(key: str, values: tuple[str, ...], census: Census) -> str:
    held = {node.labels[key] for node in census.nodes if key in node.labels}
    if not held:
        labels = {label for node in census.nodes for label in node.labels}
        hint = phrases.did_you_mean(key, labels)
        return (
            ""
            if census.declared and key not in census.keys
            else f"none of the {_known(census)} has the label {key}{hint}"
        )
    if not values or held & set(values):
        return ""
    hint = (
        phrases.did_you_mean(values[0], held) or f": known are {phrases.one_of(sorted(held)[:5])}"
    )
    return (
        f"none of the {_known(census)} has the label {key} with the value "
        f"{phrases.one_of(values)}{hint}"
    )


def _known(census: Census) -> str:
    return f"{len(census.nodes):,} {'declared' if census.declared else 'known'} nodes"


@rule(
    advice(
        "DS309",
        Severity.WARNING,
        "nodes have several platforms and the agent selects none",
        on=False,
    )
)
def one_platform(cluster: ClusterContext) -> Iterator[Violation]:
    """An agent selects no operating system or architecture, and its nodes have several."""
    census = cluster.census
    if census is None:
        return
    labels = {node.name: node.labels for node in census.nodes}
    for manifest, nodes in cluster.placed():
        requirements = node_pools.keys_of([cluster.placers[manifest.key]])
        for key, what in (("kubernetes.io/os", "system"), ("kubernetes.io/arch", "processor")):
            kinds = sorted({labels[name][key] for name in nodes if key in labels[name]})
            if len(kinds) > 1 and key not in requirements:
                path: Path = (*POD, "nodeSelector")
                message = (
                    f"its nodes are {' and '.join(kinds)}: select the {what} with the nodeSelector "
                    f"{key}"
                )
                # The architectures of an image are unknown, so they have no fix.
                linux = (
                    Fix(f"{key}: linux", (Mend((*path, key), "linux"),))
                    if "linux" in kinds
                    else None
                )
                yield Violation(path, message, linux, object=manifest.key)


@rule(advice("DS602", Severity.ERROR, "agent runs twice on a node"))
def variants_apart(cluster: ClusterContext) -> Iterator[Violation]:
    """Two variants of an agent match the same node."""
    if cluster.census is None:
        return
    for manifest, other in _variants(cluster):
        nodes = cluster.eligible[manifest.key] & cluster.eligible[other.key]
        if nodes:
            where = node_pools.summary(nodes, cluster.census)
            yield _apart(manifest, other, where)


def _apart(one: Manifest, other: Manifest, where: str) -> Violation:
    for wide, narrow in ((one, other), (other, one)):
        fix = _leaving_out(pod_spec(wide), pod_spec(narrow))
        if fix:
            return Violation(
                POD, _TWICE.format(narrow.key, where), object=wide.key, fix=fix, related=narrow.key
            )
    return Violation(POD, _TWICE.format(other.key, where), object=one.key, related=other.key)


_TWICE: Final = (
    "{} is the same agent, and both run on {}: exclude them from one with NotIn in its affinity"
)


def _leaving_out(wide: Mapping[str, Any], narrow: Mapping[str, Any]) -> Fix | None:
    """The fix that excludes the narrow variant's label from the wide one, if they differ in one
    label.
    """
    requirements = {path: (key, values) for path, key, values in _required_labels(narrow)}
    required = items(
        section(section(section(narrow.get("affinity")).get("nodeAffinity")).get(_REQUIRED)).get(
            "nodeSelectorTerms"
        )
    )
    also = {(key, values) for _, key, values in _required_labels(wide)}
    more = [requirement for requirement in requirements.values() if requirement not in also]
    written = len(section(narrow.get("nodeSelector"))) + sum(
        len(items(term.get("matchExpressions"))) for term in required
    )
    if (
        len(more) != 1
        or len(required) > 1
        or written != len(requirements)
        or any(term.get("matchFields") for term in required)
    ):
        return None
    key, values = more[0]
    out = (
        {"key": key, "operator": "NotIn", "values": list(values)}
        if values
        else {"key": key, "operator": "DoesNotExist"}
    )
    terms = items(
        section(section(section(wide.get("affinity")).get("nodeAffinity")).get(_REQUIRED)).get(
            "nodeSelectorTerms"
        )
    )
    if not terms:
        return Fix(f"exclude the nodes with {key}", (Mend(_TERMS, [{"matchExpressions": [out]}]),))
    mends = (
        Mend((*_TERMS, index, "matchExpressions"), [*items(term.get("matchExpressions")), out])
        for index, term in enumerate(terms)
    )
    return Fix(f"exclude the nodes with {key}", tuple(mends))


def _variants(cluster: ClusterContext) -> Iterable[tuple[Manifest, Manifest]]:
    """Pairs of DaemonSets that run the same image as the same agent: in one folder, or with one
    name label in a namespace.
    """
    groups: dict[tuple[object, ...], list[Manifest]] = {}
    for manifest, _ in cluster.placed():
        programs, name = _programs(manifest), pod_labels(manifest).get("app.kubernetes.io/name", "")
        if manifest.agent:
            groups.setdefault((manifest.agent, programs), []).append(manifest)
        if name:
            groups.setdefault((manifest.key.namespace, name, programs), []).append(manifest)
    pairs = (pair for members in groups.values() for pair in combinations(members, 2))
    return {(manifest.key, other.key): (manifest, other) for manifest, other in pairs}.values()


def _programs(manifest: Manifest) -> tuple[str, ...]:
    parsed = (
        images.parse(str(container.get("image") or ""))
        for container in items(pod_spec(manifest).get("containers"))
    )
    return tuple(sorted(image.repository for image in parsed))


@rule(advice("DS603", Severity.ERROR, "expected node has no pod of the agent"))
def variants_everywhere(cluster: ClusterContext) -> Iterator[Violation]:
    """An expected node matches no variant of the agent."""
    if cluster.census is None:
        return
    for agent, (expected, never) in cluster.expected.items():
        members = [manifest for manifest in cluster.daemonsets if manifest.agent == agent]
        if not members or any(member.key in cluster.unknown for member in members):
            continue
        taken = frozenset[str]().union(*(cluster.eligible[member.key] for member in members))
        counted = (
            node
            for node in cluster.census.nodes
            if _meets(node, expected) and not _meets(node, (*never, *cluster.ignored))
        )
        missed = [node.name for node in counted if node.name not in taken]
        if missed:
            where = node_pools.summary(missed, cluster.census)
            message = (
                f"agent {agent} expects pods on {where}, and no variant can run there: change the "
                f"variants, or tolerate the taints"
            )
            yield Violation(POD, message, object=members[-1].key)


def _meets(node: Node, terms: Alternatives) -> bool:
    return any(label_selector.all_match(term, node.labels) for term in terms)


@rule(NO_NODE)
def some_node(cluster: ClusterContext) -> Iterator[Violation]:
    """An agent matches no node."""
    if cluster.census is None:
        return
    for manifest, nodes in cluster.placed():
        if not nodes:
            message = (
                f"none of the {_known(cluster.census)} can run it: its rollout succeeds without "
                "any pod"
            )
            yield Violation(POD, message, object=manifest.key)
