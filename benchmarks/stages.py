"""Staged rollouts without an API server: a decision about 5,000 nodes in mid-rollout, and a whole
rollout in 100 waves in virtual time.

python -m benchmarks stages; GITOPS_DS_BENCH_SIMULATED is the number of nodes (5000).
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks import rollouts
from gitops_ds.core import names
from gitops_ds.core.daemonset import Phase, Pod
from gitops_ds.core.decision import Observation
from gitops_ds.core.live import Node
from gitops_ds.core.objects import Body
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.rollout_gates import GateSample, Reading
from gitops_ds.core.rollouts.staged_rollout import RolloutRecord, RolloutTarget, StageInputs
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide
from gitops_ds.daemonset.node_pods import NodePodLayout
from gitops_ds.kube.apimachinery import daemonsets, nodes, pods, revisions
from gitops_ds.rollouts.decisions import measured_gates, pinned_pods, staged_forecast, stages
from gitops_ds.rollouts.state import target_revisions

NODES = int(os.environ.get("GITOPS_DS_BENCH_SIMULATED", "5000"))
WAVES, NOW = 100, 1_800_000_000.0
REST: dict[str, Any] = {
    "name": "rest",
    "soak": "10s",
    "pace": {"start": f"{100 / WAVES:g}%", "factor": 1, "max": f"{100 / WAVES:g}%"},
}
DOCUMENT: dict[str, Any] = {
    "stages": [{"name": "canary", "nodes": {"count": 5}, "soak": "60s"}, REST],
    "limits": {"atRisk": {"cluster": "5%"}},
}
POLICY = rollout_policy.decode(DOCUMENT)
QUERY = 'sum by (node) (rate(agent_errors_total{node=~"$nodes"}[5m]))'
# Every kind of measured gate, and idle nodes first.
GATED = rollout_policy.decode(
    {
        **DOCUMENT,
        "stages": [
            DOCUMENT["stages"][0],
            {
                **REST,
                "nodesWhen": "idle-or-1h",
                "gates": ["pods", "nodes", "errors", "before", "control", "desk"],
            },
        ],
        "gates": {
            "errors": {"prometheus": QUERY, "below": 0.1, "for": "10m"},
            "before": {"prometheus": QUERY, "compare": {"before": "+30%"}, "for": "10m"},
            "control": {"prometheus": QUERY, "compare": {"control": "-20%"}, "for": "10m"},
            "desk": {"webhook": {"url": "https://gates.example.com/rollouts"}},
            "pods": {"memoryOfLimit": "90%"},
            "nodes": {"neighbours": {"newlyUnready": 0, "newRestarts": 1}},
        },
    }
)


def main() -> None:
    seen, inputs = half_way()
    layout = decide.layout(seen)
    print(
        f"stages.decide on {NODES} nodes, half way: {cpu(lambda: decided(layout, inputs)):.1f} ms"
    )
    whole = cpu(lambda: pinned_pods.decide_pinned(seen, inputs))
    print(f"with the layout and the writes: {whole:.1f} ms", flush=True)
    gated = measured(seen, inputs)
    alone = cpu(lambda: decided(layout, gated))
    print(f"stages.decide with {len(gated.readings)} measured gates: {alone:.1f} ms")
    print(f"a whole turn with them: {cpu(lambda: turn(seen, gated)):.1f} ms", flush=True)
    old, new = templates()
    cluster = staged_forecast.RolloutNodes(census(), most_looks=NODES * 1_000)
    began = time.process_time()
    preview = staged_forecast.of(old, new, POLICY, cluster)
    print(
        f"{NODES} nodes in {WAVES} waves simulated: {time.process_time() - began:.1f} s "
        f"for {preview.seconds:.0f} s",
        flush=True,
    )


def decided(layout: NodePodLayout, inputs: StageInputs) -> None:
    """One decision about the stages."""
    stages.decide(layout, inputs)


def turn(seen: Observation, inputs: StageInputs) -> None:
    """The work of the controller in one turn: the decision, and the next measurements."""
    measured_gates.alternation.cache_clear()  # as after an update of a node since the last turn
    staged = pinned_pods.decide_pinned(seen, inputs)
    requests = measured_gates.requests(staged.layout, inputs, staged.stages)
    assert len(requests) == len(inputs.readings)


def measured(seen: Observation, inputs: StageInputs) -> StageInputs:
    """The inputs with a reading of each gate, with a sample of each touched node, and with pods of
    others on every third node.
    """
    touched = [pod.node for pod in seen.pods if pod.hash == inputs.target.hash]
    samples = tuple(GateSample(0.05, f"node={name}", "below", before=0.05) for name in touched)
    reading = Reading(NOW - 5, frozenset(touched), samples, (0.05,) * len(touched), True)
    probes = measured_gates.probes_of(GATED, GATED.stages[1])
    busy = frozenset(node.name for node in seen.nodes[::3])
    record = RolloutRecord(inputs.record.began, {"canary": NOW - 1000})
    readings = dict.fromkeys(probes, reading)
    return replace(inputs, policy=GATED, record=record, readings=readings, busy=busy)


def cpu(work: Callable[[], object]) -> float:
    """The milliseconds of CPU of a function, the median of 15 runs."""
    times = []
    for _ in range(15):
        began = time.process_time()
        work()
        times.append(1e3 * (time.process_time() - began))
    return median(times)


def census() -> list[Node]:
    """Healthy nodes in three zones."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return [
        nodes.node_of(
            {
                "metadata": {
                    "name": f"node-{number:05d}",
                    "labels": {"topology.kubernetes.io/zone": f"zone-{number % 3}"},
                },
                "status": ready,
            }
        )
        for number in range(NODES)
    ]


def templates() -> tuple[Body, Body]:
    """A DaemonSet, and its next template."""
    body = rollouts.daemonset("1")
    body["metadata"] |= {"namespace": "default", "uid": "agent", "generation": 1}
    body["metadata"]["annotations"] = {names.TEMPLATE_GENERATION: "1"}
    body["spec"]["updateStrategy"] = {"type": "OnDelete"}
    new: dict[str, Any] = copy.deepcopy(body["spec"]["template"])
    new["spec"]["containers"][0]["image"] = "agent:2"
    return body, new


def half_way() -> tuple[Observation, StageInputs]:
    """Every second node runs the target."""
    body, new = templates()
    daemonset = daemonsets.daemonset_of(body)
    first = revisions.new(daemonset, 1)
    existing = [
        revisions.revision_of(one) for one in (first, target_revisions.body_of(daemonset, new, ""))
    ]
    stored = tuple(one for one in existing if one is not None)
    hashes = [str(first["metadata"]["labels"][names.REVISION_HASH])]
    hashes.append(stored[1].name.removeprefix("agent-"))
    owner = pods.controller_of({"ownerReferences": [revisions.owner_reference(daemonset)]})
    running = tuple(
        Pod(
            "default",
            f"agent-{number:05d}",
            str(number),
            node=f"node-{number:05d}",
            bound=True,
            labels={**new["metadata"]["labels"], names.REVISION_HASH: hashes[number % 2]},
            owner=owner,
            phase=Phase.RUNNING,
            created=NOW - 1000,
            ready=True,
            ready_since=NOW - 900,
            hash=hashes[number % 2],
        )
        for number in range(NODES)
    )
    seen = Observation(
        now=NOW, daemonset=daemonset, nodes=tuple(census()), pods=running, revisions=stored
    )
    known, proven = frozenset({hashes[1]}), frozenset({hashes[0]})
    target = RolloutTarget(
        hashes[1], new, stored[1].name, "target", staged=True, hashes=known, proven=proven
    )
    return seen, StageInputs(POLICY, target, RolloutRecord(began=NOW - 2000))
