"""An agent without stages that restarts repeatedly is never Healthy, also while it is ready."""

from __future__ import annotations

import pytest

from gitops_ds.core.health import Blame, Health, HealthState
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.status import health
from tests.apimachinery.kubelet_pods import container
from tests.daemonset.world import World, daemonset

F, H, P = HealthState.FAILED, HealthState.HEALTHY, HealthState.PROGRESSING


def looping(code: int, ran: float, up: float, restarts: int) -> World:
    """Six agents that ran for `ran` seconds, ended, restarted, and have been ready for `up`
    seconds; `minReadySeconds` is 0.
    """
    world = World(daemonset(), 6)
    world.settle()
    for pod in world.pods.values():
        began = world.now - up
        end = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "startedAt": timestamps.text(began - 1 - ran),
            "finishedAt": timestamps.text(began - 1),
        }
        pod["status"]["containerStatuses"] = [
            container(
                {"running": {"startedAt": timestamps.text(began)}},
                {"terminated": end},
                ready=True,
                restarts=restarts,
            )
        ]
    return world


def judged(world: World) -> Health:
    return health.judge(world.observe())


@pytest.mark.parametrize(
    ("code", "ran", "up", "restarts", "state"),
    [
        (137, 30, 10, 3, F),  # a liveness probe
        (0, 30, 59, 3, F),  # the program handles SIGTERM
        (137, 90, 170, 3, F),
        (137, 90, 180, 3, H),
        (1, 5, 60, 9, H),
        (1, 5, 20, 1, P),  # a single restart
        (1, 5, 60, 1, H),
        (1, 590, 599, 4, F),
        (1, 590, 600, 4, H),
        (1, 600, 5, 4, H),  # the kubelet's back-off was reset
        (1, 90 * 86400, 5, 1, H),
    ],
)
def test_an_agent_is_healthy_after_it_ran_twice_as_long_as_before_its_restart(
    code: int, ran: float, up: float, restarts: int, state: HealthState
) -> None:
    result = judged(looping(code, ran, up, restarts))
    assert result.state is state, result
    if state is H:
        assert not result.nodes
    else:
        assert all(f"exit code {code}" in node.message for node in result.nodes)
        assert {node.reason for node in result.nodes} == {
            "Starting" if state is P else "CrashLoopBackOff"
        }


def test_the_health_is_judged_again_when_the_agent_has_settled() -> None:
    world = looping(1, 40, 20, 2)
    again = judged(world).again
    assert again == pytest.approx(world.now + 60, abs=1)
    assert again is not None
    world.now = again
    assert judged(world).state is H


def test_one_agent_in_a_loop_is_the_fault_of_its_node() -> None:
    world = looping(137, 30, 10, 3)
    for pod in list(world.pods.values())[1:]:
        del pod["status"]["containerStatuses"]
    result = judged(world)
    assert result.state is HealthState.DEGRADED
    assert [(node.reason, node.blame) for node in result.nodes] == [
        ("CrashLoopBackOff", Blame.NODE)
    ]
