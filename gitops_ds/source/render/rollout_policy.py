"""The rollout policies of a cluster: agents/NAME/rollout.yaml over `rollout:` of the cluster's and
of the environment's file; and the findings in them: unknown names, contradictions, keys without an
effect.

Each finding is at its key. The JSON schema checks types and names of keys; the rules here depend on
other keys, on pools and agents, and on the calendar.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import PurePosixPath
from typing import Any

import msgspec

from gitops_ds.core.finding import Finding, RuleDefinition
from gitops_ds.core.live import Node
from gitops_ds.core.objects import Body, Path
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.rollout_policy import (
    REST,
    Freeze,
    Gate,
    GateComparison,
    NodeShare,
    RolloutPolicy,
    Stage,
)
from gitops_ds.core.sources.bundle import Pointer, Pool
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import cron_windows, node_pools
from gitops_ds.source.render import layout
from gitops_ds.source.render.agent_folder import RenderContext
from gitops_ds.source.render.layout import File
from gitops_ds.source.rules import IMPOSSIBLE, UNDEFINED_NAME

FILE = "rollout.yaml"


def policies(around: RenderContext) -> tuple[Mapping[str, Body], list[Finding]]:
    """The document of each agent with a policy, and the findings of all policies.

    Mappings are merged key by key, and the nearest file wins: the agent's, the cluster's, the
    environment's. Lists, such as `stages`, are replaced. An agent without a file has a policy if
    the cluster or the environment sets `stages`.
    """
    documents: dict[str, Body] = {}
    findings: list[Finding] = []
    defaults = [file for file in _defaults(around) if file.value]
    read = PolicySurroundings.of(around)
    for name in around.layout.agents:
        own = around.layout.read(PurePosixPath("agents", name, FILE))
        layers = [own, *defaults] if own.name else defaults
        document = merged([file.value for file in layers])
        if not own.name and "stages" not in document:
            continue
        problems = list(problems_of(document, name, read))
        findings += [_finding(problem, layers, around) for problem in problems]
        if not problems:
            documents[name] = document
    if defaults and not documents and not findings:
        # Defaults without any agent: their keys are checked with the default stages.
        document = merged([file.value for file in defaults])
        problems = list(problems_of(document, "", read))
        findings += [_finding(problem, defaults, around) for problem in problems]
    return documents, findings


def merged(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The merged documents; earlier ones take precedence."""
    document: dict[str, Any] = {}
    for layer in reversed(layers):
        document = _over(document, layer)
    return document


def _over(base: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in above.items():
        general = result.get(key)
        both = isinstance(value, Mapping) and isinstance(general, Mapping)
        result[key] = _over(general, value) if both and general is not None else value
    return result


def _defaults(around: RenderContext) -> Iterator[File]:
    """The policy sections of the cluster and of the environment."""
    for file in (around.cluster, around.environment):
        yield File(file.name, file.section("rollout"))


def _finding(problem: PolicyProblem, layers: Sequence[File], around: RenderContext) -> Finding:
    place = around.layout.place(_pointer(layers, problem), key=True)
    return problem.rule.refusal(problem.message, place, path=problem.path)


def _pointer(layers: Sequence[File], problem: PolicyProblem) -> Pointer:
    """The place of a key in the nearest file with it, or of its nearest parent."""
    depths = [_depth(file.value, problem.path) for file in layers]
    file = layers[depths.index(max(depths))]
    prefix = () if file.name.endswith(f"/{FILE}") else ("rollout",)
    return Pointer(file.name, 0, (*prefix, *problem.path[: max(depths)]))


def _depth(value: Any, path: Sequence[str | int]) -> int:
    """How many steps of a path exist in a document."""
    for depth, step in enumerate(path):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return depth
    return len(path)


_BUILT_IN = ("pods", "nodes")
_MEASURED = ("prometheus", "webhook", "memoryOfLimit", "neighbours")
_NODES = "$nodes"
_MOST_SECONDS = 60.0


class PolicyProblem(msgspec.Struct, frozen=True):
    """A finding of a policy: its rule, the path of the key, and the message."""

    rule: RuleDefinition
    path: Path
    message: str


class PolicySurroundings(msgspec.Struct, frozen=True):
    """The possible references of a policy: the agents, and the pools of every cluster of the
    repository.

    `nodes` has one node for each declared pool with nodes; None if a cluster does not declare all
    of them.
    """

    agents: tuple[str, ...]
    clusters: tuple[tuple[Pool, ...], ...]
    nodes: tuple[tuple[Node, tuple[Pool, ...]], ...] | None
    keys: frozenset[str] = frozenset()

    @classmethod
    def of(cls, around: RenderContext) -> PolicySurroundings:
        """Those of the whole repository: its clusters share the policies of agents."""
        clusters = tuple(layout.pools(file) for file in around.layout.clusters.values())
        nodes: list[tuple[Node, tuple[Pool, ...]]] | None = []
        keys: frozenset[str] | None = None
        for pools in clusters:
            has_nodes = all(pool.nodes is not None for pool in pools)
            one_each = [replace(pool, nodes=min(1, pool.nodes or 0)) for pool in pools]
            census = node_pools.declared(tuple(one_each)) if has_nodes else None
            if census is None or nodes is None:
                nodes = None
                continue
            nodes += [(node, pools) for node in census.nodes]
            keys = census.keys if keys is None else keys & census.keys
        agents = tuple(around.layout.agents)
        return cls(agents, clusters, tuple(nodes) if nodes else None, keys or frozenset())


def problems_of(
    document: Mapping[str, Any], agent: str, around: PolicySurroundings
) -> Iterator[PolicyProblem]:
    """The problems of the policy of one agent."""
    try:
        policy = rollout_policy.decode(document)
    except ValueError as error:
        at: Path = ("stages",) if "stages" in document else ()
        yield PolicyProblem(IMPOSSIBLE, at, str(error))
        return
    for number, stage in enumerate(policy.stages):
        yield from _of_stage(policy, stage, ("stages", number), around)
    yield from _of_limits(policy)
    for name, gate in policy.gates.items():
        yield from _of_gate(name, gate, document["gates"][name])
    yield from _of_windows(policy)
    for number, freeze in enumerate(policy.freeze):
        yield from _of_freeze(freeze, ("freeze", number))
    for number, after in enumerate(policy.after):
        path: Path = ("after", number, "agent")
        if after.agent == agent:
            yield PolicyProblem(IMPOSSIBLE, path, f"{agent} waits for itself")
        elif after.agent not in around.agents:
            hint = layout.did_you_mean(after.agent, around.agents)
            yield PolicyProblem(UNDEFINED_NAME, path, f"there is no agents/{after.agent}/{hint}")


def _of_stage(
    policy: RolloutPolicy, stage: Stage, path: Path, around: PolicySurroundings
) -> Iterator[PolicyProblem]:
    gates = (*_BUILT_IN, *policy.gates)
    for kind, names, choices in (
        ("gate", stage.gates, gates),
        ("window", stage.windows, tuple(policy.windows)),
    ):
        for name in names:
            if name not in choices:
                message = f"there is no {kind} {name}{layout.did_you_mean(name, choices)}"
                yield PolicyProblem(UNDEFINED_NAME, (*path, f"{kind}s"), message)
    pools = {pool.name for cluster in around.clusters for pool in cluster}
    unknown = [name for name in (stage.where.pool if stage.where else ()) if name not in pools]
    if pools:
        for name in unknown:
            message = f"there is no pool {name}{layout.did_you_mean(name, pools)}"
            yield PolicyProblem(UNDEFINED_NAME, (*path, "where", "pool"), message)
    if stage.where is not None and not unknown and _is_empty(stage, around):
        message = f"no declared node of any cluster is in stage {stage.name}: change or remove it"
        yield PolicyProblem(IMPOSSIBLE, (*path, "where"), message)
    if stage.until != Stage("").until and stage.nodes_when != "idle":
        message = "until has no effect without nodesWhen: idle: add it, or remove until"
        yield PolicyProblem(IMPOSSIBLE, (*path, "until"), message)
    if stage.soak_between and not stage.one_at_a_time:
        message = "soakBetween has no effect without oneAtATime: add it, or remove soakBetween"
        yield PolicyProblem(IMPOSSIBLE, (*path, "soakBetween"), message)
    if stage.name == REST and (stage.where or stage.nodes):
        key = "where" if stage.where else "nodes"
        message = f"{REST} takes every node that no other stage names: name the stage differently"
        yield PolicyProblem(IMPOSSIBLE, (*path, key), message)


def _is_empty(stage: Stage, around: PolicySurroundings) -> bool:
    """Whether no declared node is in the stage; only labels with `keys` are known."""
    if around.nodes is None or stage.where is None:
        return False
    if any(match.key not in around.keys for match in stage.where.match):
        return False
    return not any(node_pools.in_scope(stage.where, node, pools) for node, pools in around.nodes)


def _of_limits(policy: RolloutPolicy) -> Iterator[PolicyProblem]:
    limits = policy.limits.at_risk
    shares: tuple[tuple[str, NodeShare | None], ...] = (
        ("cluster", limits.cluster),
        ("perZone", limits.per_zone),
        ("perVariant", limits.per_variant),
    )
    for name, share in shares:
        if share is not None and not share.amount:
            message = f"with a limit of {share} no node is ever updated: set at least 1"
            yield PolicyProblem(IMPOSSIBLE, ("limits", "atRisk", name), message)
    ready = policy.gate("pods").ready_within
    if "pods" in policy.gates and ready > policy.progress.per_node:
        message = "readyWithin is longer than progress.perNode, which fails the node before"
        yield PolicyProblem(IMPOSSIBLE, ("gates", "pods", "readyWithin"), message)


def _of_gate(name: str, gate: Gate, document: Mapping[str, Any]) -> Iterator[PolicyProblem]:
    """The contradictions of one gate: a query needs a bound, and a bound needs a query."""
    path: Path = ("gates", name)
    bounds = [key for key in ("below", "above", "compare") if key in document]
    measured = [key for key in _MEASURED if key in document]
    if gate.prometheus and not bounds:
        message = "the query has no bound: set below, above or compare"
        yield PolicyProblem(IMPOSSIBLE, (*path, "prometheus"), message)
    elif gate.prometheus and "compare" in bounds and gate.compare == GateComparison():
        message = "compare names nothing to compare with: set before or control"
        yield PolicyProblem(IMPOSSIBLE, (*path, "compare"), message)
    elif not gate.prometheus and bounds:
        message = f"{bounds[0]} has no effect without a query: set prometheus"
        yield PolicyProblem(IMPOSSIBLE, (*path, bounds[0]), message)
    elif name not in _BUILT_IN and not measured:
        message = f"gate {name} measures nothing: set prometheus or webhook"
        yield PolicyProblem(IMPOSSIBLE, path, message)
    if gate.compare.control is not None and _NODES not in gate.prometheus:
        message = (
            f"control has no effect: the query is the same for untouched nodes without {_NODES}"
        )
        yield PolicyProblem(IMPOSSIBLE, (*path, "compare"), message)
    if name != "nodes" and "conditions" in document:
        message = "conditions has no effect outside of the gate nodes: move it there"
        yield PolicyProblem(IMPOSSIBLE, (*path, "conditions"), message)
    if gate.below is not None and gate.above is not None and gate.below <= gate.above:
        message = f"no value is below {gate.below:g} and above {gate.above:g}"
        yield PolicyProblem(IMPOSSIBLE, (*path, "below"), message)
    yield from _of_measurement(path, gate, document, measured)


def _of_measurement(
    path: Path, gate: Gate, document: Mapping[str, Any], measured: Sequence[str]
) -> Iterator[PolicyProblem]:
    """Findings of keys about measurements in a gate without any, and of a failure by the first
    measurement.
    """
    for key in ("for", "noData"):
        if key in document and not measured and path[-1] in _BUILT_IN:
            message = f"{key} has no effect without a measurement: set {' or '.join(_MEASURED)}"
            yield PolicyProblem(IMPOSSIBLE, (*path, key), message)
    if "dataOf" in document and _NODES not in gate.prometheus and gate.memory_of_limit is None:
        message = f"dataOf has no effect: the gate has neither memoryOfLimit nor {_NODES}"
        yield PolicyProblem(IMPOSSIBLE, (*path, "dataOf"), message)
    if gate.webhook is not None and gate.webhook.timeout > _MOST_SECONDS:
        message = f"a webhook has at most {_MOST_SECONDS:g} seconds to answer"
        yield PolicyProblem(IMPOSSIBLE, (*path, "webhook", "timeout"), message)
    if gate.no_data == "fail" and measured and not gate.for_:
        message = "a new pod has no data before its first scrape: set for, longer than that"
        yield PolicyProblem(IMPOSSIBLE, (*path, "noData"), message)


def _of_windows(policy: RolloutPolicy) -> Iterator[PolicyProblem]:
    for name, window in policy.windows.items():
        if problem := cron_windows.problem_of_year(window):
            yield PolicyProblem(IMPOSSIBLE, ("windows", name, "cron"), problem)
        elif not window.length:
            message = "a window of no length is never open"
            yield PolicyProblem(IMPOSSIBLE, ("windows", name, "length"), message)


def _of_freeze(freeze: Freeze, path: Path) -> Iterator[PolicyProblem]:
    days = []
    for key, text in (("from", freeze.from_), ("to", freeze.to)):
        try:
            days.append(date.fromisoformat(text))
        except ValueError:
            yield PolicyProblem(IMPOSSIBLE, (*path, key), f"{text} is not a day of the calendar")
    if len(days) > 1 and days[1] < days[0]:
        message = f"the freeze ends on {freeze.to}, before it begins on {freeze.from_}"
        yield PolicyProblem(IMPOSSIBLE, (*path, "to"), message)
