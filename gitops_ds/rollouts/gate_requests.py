"""The measurements that the gates of a rollout need now. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from gitops_ds.apimachinery import quantities
from gitops_ds.daemonset.node_pods import NodePodLayout
from gitops_ds.model.daemonset import Pod
from gitops_ds.model.objects import Body, CommitId
from gitops_ds.model.rollouts.rollout_gates import (
    GateRequest,
    MemoryRequest,
    NeighboursRequest,
    Probe,
    ProbeKind,
    PrometheusRequest,
    Subject,
    WebhookRequest,
)
from gitops_ds.model.rollouts.rollout_policy import Gate, Stage
from gitops_ds.model.rollouts.staged_rollout import StageInputs, StagesDecision, StageState
from gitops_ds.rollouts import gate_results, node_steps

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
    probes = tuple(gate_results.probes(inputs.policy, stage)) if stage is not None else ()
    if not probes or not inputs.target.staged or decided.halt is not None:
        return ()
    running = {
        one.node
        for one in decided.nodes
        if one.stage == probes[0].stage and one.step in gate_results.RUNNING
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
        one for probe in probes for one in _request(layout, inputs, decided, (probe, pods))
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
    name = next((one.name for one in decided.stages if one.state in under_way), None)
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
        kinds = gate_results.kinds_of(layout.seen.nodes)
        nodes, untouched = gate_results.controls(decided.nodes, kinds, subject.probe.stage)
        if not untouched:
            return
        control = gate.prometheus.replace(NODES, alternation(untouched))
    before = (
        decided.record.before.get(subject.probe.stage) if gate.compare.before is not None else None
    )
    query = gate.prometheus.replace(NODES, alternation(nodes))
    about = nodes if NODES in gate.prometheus else ()
    yield PrometheusRequest(subject, query, before, control, about)
