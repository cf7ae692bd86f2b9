"""What a rollout reads of other DaemonSets counts as their deployer announced it: who may write one
of them neither holds nor releases a rollout of another namespace.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.decision import Observation
from gitops_ds.core.rollouts.rollout_policy import After
from gitops_ds.core.rollouts.staged_rollout import Halt, RolloutRecord
from gitops_ds.core.values import replace
from gitops_ds.rollouts.decisions import stage_inputs
from gitops_ds.rollouts.state import announced_daemonsets, keys, target_revisions
from gitops_ds.rollouts.state.announced_daemonsets import DaemonSetWrite
from gitops_ds.rollouts.state.attested_records import Digests
from gitops_ds.rollouts.state.daemonset_statements import RolloutPhase
from tests.rollouts.rollout_world import SECOND, RolloutWorld
from tests.rollouts.test_stages import FAST

CLUSTER, AGENT = "cluster", "agent"


def halted(scope: str) -> tuple[RolloutWorld, Digests]:
    """A halted rollout of a policy with a scope, and what its deployer announced."""
    world = RolloutWorld(FAST, 4)
    metadata = world.body["metadata"]
    metadata |= {"name": "other", "uid": "other-uid"}
    policy = target_revisions.policy_text({"onFailure": {"scope": scope}}, ())
    metadata["annotations"] |= {
        keys.ROLLOUT_POLICY: policy,
        names.REPOSITORY: "https://example.com/a repository",
        names.PATH: "agents/cni/daemonset.yaml",
    }
    world.commit(SECOND)
    name = world.body["metadata"]["annotations"][keys.TARGET]
    record = RolloutRecord(1.0, halt=Halt(2.0, "canary", "it crashes"))
    world.revisions[name]["metadata"]["annotations"][keys.ROLLOUT_RECORD] = (
        target_revisions.encoded(record)
    )
    stated = announced_daemonsets.stated_with(world.body, world.observe().revisions)
    write = DaemonSetWrite("other-uid", stated)
    return world, {write.key: write.announcement({})}


def announced(world: RolloutWorld, known: Digests) -> Observation:
    seen = world.observe()
    return replace(
        seen,
        daemonset=announced_daemonsets.as_announced(seen.daemonset, seen.revisions, known),
    )


def edit(world: RolloutWorld, edits: dict[str, Any]) -> None:
    annotations = {**world.body["metadata"]["annotations"], **edits}
    kept = {name: text for name, text in annotations.items() if text is not None}
    world.body["metadata"]["annotations"] = kept


FORGED: list[dict[str, Any]] = [
    {},
    {keys.ROLLOUT_POLICY: None},
    {keys.ROLLOUT_POLICY: "unreadable"},
    *(
        {keys.ROLLOUT_POLICY: target_revisions.policy_text({"onFailure": {"scope": scope}}, ())}
        for scope in (CLUSTER, AGENT)
    ),
    {keys.TARGET: None, keys.PHASE: RolloutPhase.COMPLETE},
    {keys.TARGET: "nowhere"},
    {keys.ROLLOUT_POLICY: None, keys.TARGET: None},
    {names.REPOSITORY: None},
    {names.REPOSITORY: "another"},
    {names.PATH: None},
    {names.PATH: "agents/another/daemonset.yaml"},
]


@pytest.mark.parametrize("scope", [CLUSTER, AGENT])
@pytest.mark.parametrize("edits", FORGED)
def test_an_edit_neither_holds_nor_releases_the_rollout_of_another_daemonset(
    scope: str, edits: dict[str, Any]
) -> None:
    other, known = halted(scope)
    world = RolloutWorld(FAST, 4)
    repository = other.body["metadata"]["annotations"][names.REPOSITORY]
    world.body["metadata"]["annotations"][names.REPOSITORY] = repository
    edit(other, edits)
    seen = announced(other, known)
    reason = stage_inputs.halt_elsewhere(
        world.observe().daemonset, [(seen.daemonset, seen.revisions)]
    )
    assert ("it crashes" in reason) is (scope == CLUSTER)
    behind = stage_inputs.behind((After("cni"), After("another")), [seen])
    assert behind == {"cni": frozenset(f"node-{n:03}" for n in range(4))}


@pytest.mark.parametrize("edits", FORGED)
def test_a_hold_names_each_edit_of_the_annotations_of_a_rollout(edits: dict[str, Any]) -> None:
    world, known = halted(AGENT)
    before = world.body["metadata"]["annotations"]
    edit(world, edits)
    inputs = stage_inputs.observed(announced(world, known))
    assert inputs is not None
    assert inputs.target.staged
    changed = {name for name, text in edits.items() if text != before.get(name)}
    edited = changed & {*keys.READ_BY_ROLLOUTS}
    assert bool(inputs.foreign) is bool(edited)
    assert inputs.foreign in ("", *edited)
