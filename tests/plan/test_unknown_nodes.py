"""Without the right to list nodes a plan reports an unknown effect on them; an apply that may move
pods writes nothing.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.change import Change, Operation
from gitops_ds.core.live import Live, NodeImpact
from gitops_ds.core.objects import NODE, Key
from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import guard_limits, printers
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator.faults import SimulatedRequest
from tests import schemas
from tests.plan import world
from tests.plan.world import NOBODY_WAITS, PRUNING, Files, World, config_map, daemonset

play = world.play

FILES = {
    "agent.yaml": daemonset(),
    "space.yaml": [world.namespace("logs"), daemonset("inner", namespace="logs")],
    "kept.yaml": config_map("kept"),
}


def without_nodes(request: SimulatedRequest) -> errors.ClusterError | None:
    listing = (request.verb, request.resource) == ("list", NODE)
    return (
        errors.Forbidden(
            'nodes is forbidden: User "viewer" cannot list resource "nodes"', 403, "Forbidden"
        )
        if listing
        else None
    )


def but(**changed: Any) -> Files:
    files = {**FILES, **{f"{name}.yaml": content for name, content in changed.items()}}
    return {name: content for name, content in files.items() if content is not None}


CHANGES: dict[str, tuple[Files, ApplyOptions, str]] = {
    "another image": (
        but(agent=daemonset(image="registry.example.com/agent:2")),
        NOBODY_WAITS,
        "update DaemonSet default/agent",
    ),
    "fewer nodes": (
        but(agent=daemonset(nodeSelector={"disk": "ssd"})),
        NOBODY_WAITS,
        "update DaemonSet default/agent",
    ),
    "another agent": (but(more=daemonset("more")), NOBODY_WAITS, "create DaemonSet default/more"),
    "no agent": (but(agent=None), PRUNING, "delete DaemonSet default/agent"),
    "no namespace": (but(space=None), PRUNING, "delete Namespace logs"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_plan_shows_what_changes_and_an_apply_writes_nothing(
    deployer: World, cluster: simulator.SimulatedCluster, /, change: str
) -> None:
    files, options, line = CHANGES[change]
    await deployer.apply(FILES)
    client = cluster.client("viewer", faults=without_nodes)
    viewer = World(client)
    draft = await viewer.draft(files, "second", options)
    text, document = printers.as_text(draft.plan), printers.as_json(draft.plan)
    assert line in text
    assert "the effect on nodes is unknown: nodes is forbidden" in text
    assert "; nodes: unknown." in text
    assert "| unknown |" in printers.as_markdown(draft.plan) or change == "no namespace"
    assert {one.nodes for one in (*draft.plan.changes, *draft.plan.held)} == {NodeImpact()}
    assert document["nodesKnown"] is False
    schemas.check(document, "plan")
    client.count.reset()
    with pytest.raises(
        errors.NotPermitted, match="nothing was applied: the effect on nodes is unknown"
    ):
        await viewer.carry_out(draft, options)
    assert client.count.writes == 0


def test_an_update_of_a_namespace_affects_no_node() -> None:
    update = Change(Operation.UPDATE, Key("", "Namespace", "", "logs"), None)
    live = Live(unlisted="nodes is forbidden")
    assert guard_limits.unknown_nodes([update], live) == ()
    assert guard_limits.unknown_nodes([replace(update, operation=Operation.DELETE)], live) != ()


async def test_changes_without_pod_restarts_are_applied_without_that_right(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(FILES)
    viewer = World(cluster.client("viewer", faults=without_nodes))
    done = await viewer.apply(but(kept=config_map("kept", a="1")), "second")
    assert (done.written, done.refusals) == (("update ConfigMap default/kept",), ())
    assert printers.as_json(done.plan)["nodesKnown"] is True
    again = await viewer.draft(but(agent=None), "third")  # pruning is off: nothing is deleted
    assert again.plan.unknown_nodes is None
