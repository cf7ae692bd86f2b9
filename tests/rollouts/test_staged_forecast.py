"""The preview of a staged rollout: what it lists is what happens."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gitops_ds.core.change import StagedPreview
from gitops_ds.core.objects import Body
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.daemonset.rollout_forecast import RolloutPace
from gitops_ds.kube.apimachinery import nodes, pods, timestamps
from gitops_ds.rollouts.decisions import staged_forecast
from gitops_ds.rollouts.decisions.staged_forecast import RolloutNodes
from tests.daemonset.world import daemonset
from tests.profiles import examples
from tests.rollouts.rollout_world import SECOND, RolloutWorld, zoned
from tests.rollouts.test_stages import FAST, policies

PACE = RolloutPace(start=30.0, stop=5.0)
PACES = (PACE, PACE, RolloutPace(start=1.0, stop=0.0), RolloutPace(start=90.0, stop=20.0))


def preview(
    policy: dict[str, Any], bodies: list[dict[str, Any]], most_looks: int = 400_000
) -> StagedPreview:
    return staged_forecast.of(
        daemonset(),
        template_of(daemonset(SECOND)),
        rollout_policy.decode(policy),
        RolloutNodes([nodes.node_of(body) for body in bodies], most_looks=most_looks),
        PACE,
    )


def template_of(body: dict[str, Any]) -> Body:
    template: Body = body["spec"]["template"]
    return template


class TimedWorld(RolloutWorld):
    """A rollout where each pod takes the time that the preview assumes; nothing fails."""

    def __init__(
        self, policy: dict[str, Any], bodies: list[dict[str, Any]], pace: RolloutPace
    ) -> None:
        super().__init__(policy, bodies)
        self.pace = pace
        self.began = self.now
        self.updated: dict[str, float] = {}
        self.events: dict[str, float] = {}

    def play(self) -> None:
        """Until every node has the target."""
        self.commit(SECOND)
        self.began = self.now
        for _ in range(10_000):
            decided = self.one_turn()
            self.deploy()
            if decided is None or (
                len(self.on(SECOND)) == len(self.nodes) and decided.stages.complete
            ):
                return
            for name in decided.stages.take:
                self.updated.setdefault(name, self.now - self.began)
            if not decided.decision.actions:
                self.advance(decided.stages.wake_at)
        raise AssertionError("the rollout does not end")

    def bind(self, pod: dict[str, Any]) -> None:
        """The scheduler binds a pod at once when its place is free; it is ready later."""
        pod["spec"]["nodeName"] = pods.pod_of(pod).node
        since = timestamps.text(self.now)
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": since}
        pod["status"] = {**pod.get("status", {}), "conditions": [bound]}

    def advance(self, wake_at: float | None) -> None:
        """To the next time at which a pod starts, ends or has soaked."""
        for name, body in self.pods.items():
            waits = self.waits(body)
            if "deletionTimestamp" in body["metadata"]:
                self.events.setdefault(name, self.now + self.pace.stop)
            elif "phase" not in body.get("status", {}) and not waits and name not in self.events:
                self.bind(body)
                self.events[name] = self.now + self.pace.start
        times = [*self.events.values(), *([wake_at] if wake_at is not None else [])]
        self.now = max(self.now, min(times))
        for name, time in list(self.events.items()):
            if time <= self.now:
                del self.events[name]
                if "deletionTimestamp" in self.pods[name]["metadata"]:
                    self.vanish(name)
                else:
                    self.start(self.pods[name])


# The canary is taken from another stage, and passes as soon as its pod is ready.
EMPTY = {"name": "empty", "soak": "0s", "where": {"match": [{"key": "no", "in": ["node"]}]}}


@pytest.mark.slow
@example({"limits": {"atRisk": {"cluster": "34%"}}, "stages": [EMPTY]}, 3, 1, PACE)
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(policies(), st.integers(1, 14), st.integers(1, 4), st.sampled_from(PACES))
def test_the_order_and_the_times_of_the_preview_are_those_of_the_rollout(
    policy: dict[str, Any], count: int, zones: int, pace: RolloutPace
) -> None:
    """The order also where pods start and stop at another pace than the preview assumes, unless a
    limit of each zone lets the node go first whose zone has room first.
    """
    if "perZone" in policy["limits"]["atRisk"]:
        pace = PACE
    bodies = zoned(count, zones)
    before = preview(policy, copy.deepcopy(bodies))
    world = TimedWorld(policy, bodies, pace)
    world.play()
    stage_of = {name: number for number, one in enumerate(before.stages) for name in one.nodes}
    happened = sorted(world.updated, key=lambda name: (stage_of[name], world.updated[name]))
    assert tuple(happened) == before.order
    if pace != PACE:
        return
    for stage in before.stages:
        if stage.nodes:
            assert stage.begins == min(world.updated[name] for name in stage.nodes)
            assert stage.ends is not None
    assert before.seconds == world.now - world.began


def test_a_stage_has_its_nodes_in_order_and_its_times() -> None:
    simulation = preview(FAST, zoned(10))
    canary, rest = simulation.stages
    assert canary.nodes == ("node-000", "node-001")
    # One node after the other: 5 s until the pod is gone, 30 s until the next is ready; then 60 s
    # of soak.
    assert (canary.begins, canary.ends) == (0.0, 130.0)
    assert (rest.nodes[:2], rest.begins) == (("node-002", "node-003"), 130.0)
    assert simulation.seconds == rest.ends
    assert simulation.cap == 4


def test_approvals_calendars_and_metrics_are_assumed_to_pass_and_named() -> None:
    policy = {
        "stages": [
            {"name": "canary", "gates": ["pods", "flow"], "windows": ["night"]},
            {"name": "rest", "approval": {"from": ["team"]}, "nodesWhen": "idle-or-24h"},
        ],
        "gates": {"flow": {"prometheus": "up", "below": 1}},
        "windows": {"night": {"cron": "0 1 * * *", "length": "1h"}},
        "after": [{"agent": "cni", "sameNode": True}],
        "freeze": [{"from": "1970-01-01", "to": "2100-01-01"}],
    }
    simulation = preview(policy, zoned(3))
    assert simulation.seconds is not None
    after = "agent cni on the same node"
    assert [stage.waits for stage in simulation.stages] == [
        ("window night", "gate flow", after),
        ("approval by team", "nodes when idle-or-24h", after),
    ]


def test_a_node_that_is_broken_now_is_parked() -> None:
    bodies = zoned(4)
    bodies[0]["status"]["conditions"][0]["status"] = "False"
    simulation = preview(FAST, bodies)
    assert simulation.parked == ("node-000",)
    assert simulation.order == ("node-001", "node-002", "node-003")
    assert simulation.seconds is not None


def turns_of(policy: dict[str, Any], bodies: list[dict[str, Any]]) -> int:
    """The number of decisions of a simulation."""
    run = staged_forecast._Simulation(
        staged_forecast._daemonset(daemonset()),
        template_of(daemonset(SECOND)),
        rollout_policy.decode(policy),
        RolloutNodes([nodes.node_of(body) for body in bodies]),
        PACE,
    )
    turns = 1
    while run.turn():
        turns += 1
    return turns


def test_the_limit_of_a_simulation_counts_its_nodes_in_each_turn_but_the_last() -> None:
    looks = 10 * (turns_of(FAST, zoned(10)) - 1)
    assert not preview(FAST, zoned(10), most_looks=looks).estimated
    assert preview(FAST, zoned(10), most_looks=looks - 1).estimated


@pytest.mark.parametrize("count", [100, 125, 250, 251])
def test_all_nodes_that_may_be_updated_at_once_are(count: int) -> None:
    """Also where the writes of a turn are limited: the next turn is at the same time."""
    policy = {
        "stages": [{"name": "rest", "soak": "0s", "pace": {"start": count, "max": count}}],
        "limits": {"atRisk": {"cluster": "100%"}},
    }
    simulation = preview(policy, zoned(count))
    assert simulation.seconds == PACE.start + PACE.stop


def test_a_long_rollout_is_simulated_as_far_as_time_allows() -> None:
    policy = {"stages": [{"name": "rest", "pace": {"max": 1}}], "limits": {"atRisk": {"nodes": 1}}}
    simulation = preview(policy, zoned(200), most_looks=20_000)
    assert (simulation.estimated, simulation.stages[0].begins) == (True, 0.0)
    # one node after the other, of which each needs 35 s to restart and 60 s of soak
    assert simulation.seconds == simulation.stages[0].ends == pytest.approx(200 * 95, rel=0.01)
    assert len(simulation.order) == 200


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("soak", ["0s", "10s", "5m"])
@pytest.mark.parametrize("pace", [{"start": "5%", "factor": 2}, {"start": 3, "max": 3}])
def test_the_times_of_a_rollout_that_is_estimated_are_near_those_of_the_whole(
    share: float, soak: str, pace: dict[str, Any]
) -> None:
    policy = {
        "stages": [
            {"name": "canary", "nodes": {"count": 2}, "soak": "60s"},
            {"name": "rest", "soak": soak, "pace": pace},
        ],
        "limits": {"atRisk": {"cluster": "20%"}},
    }
    bodies = zoned(60)
    whole = preview(policy, copy.deepcopy(bodies))
    looks = int(share * 60 * turns_of(policy, copy.deepcopy(bodies)))
    estimated = preview(policy, bodies, most_looks=looks)
    assert (whole.estimated, estimated.estimated) == (False, True)
    for stage, expected in zip(estimated.stages, whole.stages, strict=True):
        assert stage.begins == pytest.approx(expected.begins, rel=0.3)
        assert stage.ends == pytest.approx(expected.ends, rel=0.3)
