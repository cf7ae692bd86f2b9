"""How long nodes waited for an agent after they joined."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.daemonset import Pod
from gitops_ds.core.decision import Observation
from gitops_ds.core.live import JoinTime, Node
from gitops_ds.daemonset import rollout_forecast
from gitops_ds.kube.apimachinery import daemonsets
from tests.daemonset.world import START, daemonset


def pod(node: str, created: float = 2.0, ready: float | None = 30.0, **fields: Any) -> Pod:
    since = None if ready is None else START + ready
    values = {"ready": ready is not None, "created": START + created, "ready_since": since}
    return Pod("logging", f"agent-{node}", node, node=node, **{**values, **fields})


def measured(*pods: Pod) -> JoinTime | None:
    body = daemonset(minReadySeconds=10)
    nodes = tuple(Node(name, created=START) for name in ("a", "b", "c"))
    seen = Observation(START + 900, daemonsets.daemonset_of(body), nodes, pods)
    return rollout_forecast._join_time(seen)


def test_it_is_the_median_with_min_ready_seconds() -> None:
    assert measured(pod("a"), pod("b", ready=20.0), pod("c", ready=300.0)) == JoinTime(40.0, 3)


@pytest.mark.parametrize(
    "other",
    [
        pod("a", created=61.0),
        pod("a", created=-1.0),
        pod("a", ready=None),
        pod("a", restarts=1),
        pod("gone"),
    ],
)
def test_pods_that_did_not_start_with_their_node_do_not_count(other: Pod) -> None:
    assert measured(other) is None
    assert measured(other, pod("b")) == JoinTime(40.0, 1)


@pytest.mark.parametrize("created", [0.0, 60.0])
def test_a_pod_of_the_first_minute_counts(created: float) -> None:
    assert measured(pod("a", created=created)) == JoinTime(40.0, 1)


@pytest.mark.parametrize("required", [True, False])
def test_a_preview_has_it_for_a_required_agent(required: bool) -> None:
    new = daemonset()
    new["metadata"]["annotations"] |= {names.REQUIRED_FOR_WORK: "true"} if required else {}
    seen = Observation(
        START + 900, daemonsets.daemonset_of(daemonset()), (Node("a", created=START),), (pod("a"),)
    )
    expected = JoinTime(30.0, 1) if required else None
    assert rollout_forecast.impact_of_change(seen, new).joined == expected
