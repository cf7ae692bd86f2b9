"""The measured gates of a stage: what they need to be measured now, and their results from the last
readings.

1. `for`: a bound fails the gate when every reading of that time exceeds it, and the gate passes
   when every reading of that time is within its bounds. Any other reading begins the time again.
   Readings of an earlier process of the service count for a failure, not for a pass.
2. While a bound is exceeded, and while there is no data, no further node is touched. With
   `noData: fail` that is a failure after the time of `for`, with `pass` it is ignored.
3. A gate passes by a reading that covers every node of the stage that runs the target.
4. Without untouched nodes `control` has nothing to compare with: the last result counts, and
   without one there is no data.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec

from gitops_ds.core import duration
from gitops_ds.core.daemonset import Pod
from gitops_ds.core.live import Node
from gitops_ds.core.objects import Body, CommitId
from gitops_ds.core.plain_text import counted, line
from gitops_ds.core.rollouts.rollout_gates import (
    GateEvidence,
    GateRecord,
    GateRequest,
    MemoryRequest,
    NeighboursRequest,
    Probe,
    ProbeKind,
    PrometheusRequest,
    Reading,
    Subject,
    Verdict,
    WebhookRequest,
)
from gitops_ds.core.rollouts.rollout_policy import Gate, RolloutPolicy, Stage
from gitops_ds.core.rollouts.staged_rollout import (
    Halt,
    HoldKind,
    NodeProgress,
    NodeStep,
    StageHold,
    StageInputs,
    StagesDecision,
    StageState,
)
from gitops_ds.daemonset.node_pods import NodePodLayout
from gitops_ds.kube.apimachinery import quantities
from gitops_ds.rollouts.decisions import gate_readings, node_steps, stage_members
from gitops_ds.rollouts.decisions.gate_readings import Assessment
from gitops_ds.rollouts.decisions.staged_nodes import StagedNodes

Platform = tuple[str, str]

RUNNING = (NodeStep.SOAKING, NodeStep.PROVED)
SHOWN = 20  # nodes in the evidence of a failure
_LONGEST = 500  # characters of a query in the evidence


class GateState(StrEnum):
    """The state of a measured gate."""

    PASSED = "passed"
    FAILED = "failed"
    PENDING = "pending"


class GateResult(msgspec.Struct, frozen=True):
    """The result of one probe: its state, its record, why it is pending, and what failed."""

    probe: Probe
    state: GateState
    record: GateRecord | None
    hold: StageHold | None = None
    failure: str = ""
    evidence: GateEvidence | None = None

    @property
    def pauses(self) -> bool:
        """Whether no further node of the stage is touched meanwhile."""
        return self.record is None or self.record.verdict is not Verdict.MET


def probes_of(policy: RolloutPolicy, stage: Stage) -> Iterator[Probe]:
    """The measured keys of the gates of a stage."""
    for name in stage.gates:
        gate = policy.gate(name)
        yield from (Probe(stage.name, name, kind) for kind in ProbeKind if _measures(gate, kind))


def _measures(gate: Gate, kind: ProbeKind) -> bool:
    match kind:
        case ProbeKind.PROMETHEUS:
            return bool(gate.prometheus)
        case ProbeKind.WEBHOOK:
            return gate.webhook is not None
        case ProbeKind.MEMORY:
            return gate.memory_of_limit is not None
        case ProbeKind.NEIGHBOURS:
            return gate.neighbours.is_limited


def of(fleet: StagedNodes, stage: Stage, members: Sequence[str]) -> tuple[GateResult, ...]:
    """The results for a stage; none before a node runs the target, and for a revert."""
    measured = tuple(probes_of(fleet.policy, stage))
    if not measured or not fleet.inputs.target.staged:
        return ()
    running = frozenset(name for name in members if fleet.nodes[name].step in RUNNING)
    return tuple(_result(fleet, probe, running) for probe in measured) if running else ()


def pause(results: Sequence[GateResult]) -> StageHold | None:
    """Why no further node of the stage is touched."""
    return next(
        (result.hold for result in results if result.hold is not None and result.pauses), None
    )


def pending(results: Sequence[GateResult]) -> StageHold | None:
    """Why a stage whose nodes are proved does not pass."""
    return next((result.hold for result in results if result.state is not GateState.PASSED), None)


def halt(results: Sequence[GateResult], now: float) -> Halt | None:
    """The first gate that failed."""
    for result in results:
        if result.state is GateState.FAILED:
            return Halt(now, result.probe.stage, result.failure, gate=result.evidence)
    return None


def controls(
    nodes: Sequence[NodeProgress], kinds: Mapping[str, Platform], stage: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Touched nodes that run the target and as many untouched ones of the same kinds.

    Of more touched nodes than untouched ones, those that are not proved come first; of the
    untouched ones those of the same stage.
    """
    touched = [node for node in nodes if node.stage == stage and node.step in RUNNING]
    touched.sort(key=lambda one: (one.step is NodeStep.PROVED, one.node))
    untouched = [node for node in nodes if node.step is NodeStep.WAITING]
    untouched.sort(key=lambda one: (one.stage != stage, one.node))
    room = Counter(kinds.get(node.node) for node in untouched)
    touched_counts = Counter(kinds.get(node.node) for node in touched)
    counts = {kind: min(number, room[kind]) for kind, number in touched_counts.items()}
    return _first(touched, kinds, counts), _first(untouched, kinds, counts)


def _has_controls(fleet: StagedNodes, stage: str) -> bool:
    """Whether an untouched node is of the kind of a touched one."""
    kinds = kinds_of(fleet.layout.seen.nodes)
    return any(controls(tuple(fleet.nodes.values()), kinds, stage))


def _first(
    nodes: Sequence[NodeProgress],
    kinds: Mapping[str, Platform],
    counts: Mapping[Platform | None, int],
) -> tuple[str, ...]:
    left, chosen = dict(counts), []
    for node in nodes:
        kind = kinds.get(node.node)
        if left.get(kind, 0) > 0:
            left[kind] -= 1
            chosen.append(node.node)
    return tuple(chosen)


def kinds_of(nodes: Iterable[Node]) -> Mapping[str, Platform]:
    """The operating system and the architecture of each node, as for the cause of failures."""
    return {node.name: stage_members.platform_of(node) for node in nodes}


def _result(fleet: StagedNodes, probe: Probe, running: frozenset[str]) -> GateResult:
    gate = fleet.policy.gate(probe.gate)
    kept = fleet.inputs.record.gates.get(probe.key)
    reading, assessment = fleet.inputs.readings.get(probe), None
    compares = probe.kind is ProbeKind.PROMETHEUS and gate.compare.control is not None
    if compares and not _has_controls(fleet, probe.stage):
        reading = Reading(fleet.now, running, reason="no untouched node of the same kind is left")
        assessment = Assessment(kept.verdict, text=kept.text) if kept is not None else None
    if reading is None:
        return GateResult(probe, GateState.PENDING, kept, _hold(fleet, probe, gate, kept))
    assessment = assessment or gate_readings.assess(gate, probe.kind, reading)
    record = _continued(kept, assessment, reading)
    lasted = reading.at - record.since
    if _fails(gate, record, reading) and lasted >= gate.for_:
        lasting = f" for {duration.words(gate.for_)}" if gate.for_ else ""
        failure = f"gate {probe.gate} failed: {_words(assessment)}{lasting}{_on(reading.nodes)}"
        evidence = _evidence(probe, gate, assessment, reading)
        return GateResult(probe, GateState.FAILED, record, None, failure, evidence)
    if record.verdict is Verdict.MET and lasted >= gate.for_ and running <= reading.nodes:
        return GateResult(probe, GateState.PASSED, record)
    hold = _hold(fleet, probe, gate, record, unavailable=reading.unavailable)
    return GateResult(probe, GateState.PENDING, record, hold)


def _continued(kept: GateRecord | None, assessment: Assessment, reading: Reading) -> GateRecord:
    """The record with the time since which every reading has had this verdict."""
    if kept is None or kept.verdict is not assessment.verdict:
        return GateRecord(assessment.verdict, reading.at, assessment.text)
    if assessment.verdict is Verdict.MET and kept.since < reading.first:
        return GateRecord(assessment.verdict, reading.first, assessment.text)
    return kept


def _fails(gate: Gate, record: GateRecord, reading: Reading) -> bool:
    """Whether the verdict is a failure once it has lasted for long enough."""
    if record.verdict is Verdict.NO_DATA:
        return gate.no_data == "fail" and not reading.unavailable
    return record.verdict is Verdict.EXCEEDED


def _hold(
    fleet: StagedNodes,
    probe: Probe,
    gate: Gate,
    record: GateRecord | None,
    *,
    unavailable: bool = False,
) -> StageHold:
    """Why a gate is pending, and until when: without data, until `progress.deadline`, after which
    it is overdue.
    """
    name, about = f"gate {probe.gate}", f"{probe.key} not measured"
    if record is None:
        return StageHold(f"{name} is not measured yet", kind=HoldKind.GATE, about=about)
    about, until = f"{probe.key} {record.verdict}", record.since + gate.for_
    reason = f"{name} has no data: {record.text}"
    match record.verdict:
        case Verdict.MET if until > fleet.now:
            reason = f"{name} is within its bounds"
        case Verdict.MET:
            reason = f"{name} is within its bounds, and measured again"
        case Verdict.EXCEEDED:
            reason = f"{name}: {record.text}"
        case Verdict.NO_DATA if gate.no_data == "hold" or unavailable:
            until = record.since + fleet.policy.progress.deadline
            overdue = ", overdue" if until <= fleet.now else ""
            reason, about = f"{reason}{overdue}", f"{about}{overdue}"
        case Verdict.NO_DATA:
            pass
    ends = until if until > fleet.now else None
    return StageHold(reason, ends, kind=HoldKind.GATE, about=about)


def _on(nodes: frozenset[str]) -> str:
    if not nodes:
        return ""
    others = f" and {counted(len(nodes) - 1, 'other node')}" if len(nodes) > 1 else ""
    return f", on {min(nodes)}{others}"


def _words(assessment: Assessment) -> str:
    return (
        f"no data ({assessment.text})" if assessment.verdict is Verdict.NO_DATA else assessment.text
    )


def _evidence(probe: Probe, gate: Gate, assessment: Assessment, reading: Reading) -> GateEvidence:
    queries = {
        ProbeKind.PROMETHEUS: gate.prometheus,
        ProbeKind.WEBHOOK: address(gate.webhook.url) if gate.webhook else "",
    }
    nodes = sorted(reading.nodes)
    value = assessment.value or _words(assessment)
    return GateEvidence(
        probe.gate,
        line(queries.get(probe.kind, probe.kind.value), _LONGEST),
        value,
        assessment.bound,
        tuple(nodes[:SHOWN]),
        len(nodes),
    )


def address(url: str) -> str:
    """A URL without its user and its query, which may contain secrets; empty for an invalid one."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


NODES = "$nodes"
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def requests(
    layout: NodePodLayout, inputs: StageInputs, decided: StagesDecision
) -> tuple[GateRequest, ...]:
    """The measurements of the current stage; none before a node runs the target, for a revert and
    for a halted rollout.
    """
    stage = _current(inputs, decided)
    probes = tuple(probes_of(inputs.policy, stage)) if stage is not None else ()
    if not probes or not inputs.target.staged or decided.halt is not None:
        return ()
    running = {
        node.node
        for node in decided.nodes
        if node.stage == probes[0].stage and node.step in RUNNING
    }
    pods = {
        node_pods.node: pod
        for node_pods in layout.nodes
        if node_pods.node in running
        for pod in node_pods.staying
        if node_steps.runs_target(layout, inputs.target, pod)
    }
    if not pods:
        return ()
    pods = dict(sorted(pods.items()))
    return tuple(
        request for probe in probes for request in _request(layout, inputs, decided, (probe, pods))
    )


@functools.lru_cache(maxsize=8)  # several gates are for the same nodes
def alternation(nodes: tuple[str, ...]) -> str:
    """A regular expression that matches these names, for a PromQL string with any quotes.

    A dot is a class of one character: the meaning of a backslash depends on the quotes. Names that
    are invalid in Kubernetes are omitted.
    """
    return "|".join(name.replace(".", "[.]") for name in nodes if _NAME.fullmatch(name))


def limits_of(template: Body) -> dict[str, int]:
    """The memory limits of the containers of a template, in bytes, by container."""
    limits = {}
    for container in (template.get("spec") or {}).get("containers") or ():
        limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
        try:
            amount = int(quantities.parse(limit)) if limit is not None else 0
        except ValueError:
            amount = 0
        if amount > 0:
            limits[str(container.get("name"))] = amount
    return limits


def _current(inputs: StageInputs, decided: StagesDecision) -> Stage | None:
    under_way = (StageState.OPEN, StageState.HELD)
    name = next((stage.name for stage in decided.stages if stage.state in under_way), None)
    return next((stage for stage in inputs.policy.stages if stage.name == name), None)


def _request(
    layout: NodePodLayout,
    inputs: StageInputs,
    decided: StagesDecision,
    measured: tuple[Probe, dict[str, Pod]],
) -> Iterator[GateRequest]:
    probe, pods = measured
    gate, daemonset = inputs.policy.gate(probe.gate), layout.seen.daemonset
    subject = Subject(
        daemonset.key, daemonset.uid, CommitId(inputs.target.commit), probe, tuple(pods)
    )
    match probe.kind:
        case ProbeKind.PROMETHEUS:
            yield from _query(layout, gate, decided, subject)
        case ProbeKind.WEBHOOK:
            if gate.webhook is not None:
                yield WebhookRequest(subject, gate.webhook.url, gate.webhook.timeout)
        case ProbeKind.MEMORY:
            names = {pod.name: node for node, pod in pods.items()}
            limits = limits_of(inputs.target.template)
            yield MemoryRequest(subject, inputs.target.hash, names, limits)
        case ProbeKind.NEIGHBOURS:
            yield NeighboursRequest(subject, {node: pod.created for node, pod in pods.items()})


def _query(
    layout: NodePodLayout, gate: Gate, decided: StagesDecision, subject: Subject
) -> Iterator[PrometheusRequest]:
    """The query about all nodes of the stage that run the target; with `control` about as many as
    there are untouched ones.
    """
    nodes, control = subject.nodes, ""
    if gate.compare.control is not None:
        kinds = kinds_of(layout.seen.nodes)
        nodes, untouched = controls(decided.nodes, kinds, subject.probe.stage)
        if not untouched:
            return
        control = gate.prometheus.replace(NODES, alternation(untouched))
    before = (
        decided.record.before.get(subject.probe.stage) if gate.compare.before is not None else None
    )
    query = gate.prometheus.replace(NODES, alternation(nodes))
    about = nodes if NODES in gate.prometheus else ()
    yield PrometheusRequest(subject, query, before, control, about)
