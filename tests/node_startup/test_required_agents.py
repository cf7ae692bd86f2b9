"""The required agents of a cluster, read from their DaemonSets and revisions."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.apimachinery import daemonsets
from gitops_ds.apimachinery.rollouts import target_revisions
from gitops_ds.model import names
from gitops_ds.model.daemonset import Pod
from gitops_ds.model.rollouts.staged_rollout import RolloutRecord
from gitops_ds.node_startup import node_waits
from gitops_ds.node_startup.node_waits import RequiredAgent
from tests.daemonset.world import daemonset
from tests.rollouts.rollout_world import SECOND, RolloutWorld


def required(**metadata: Any) -> bool:
    body = daemonset()
    annotations = {names.REQUIRED_FOR_WORK: "true", **metadata.pop("annotations", {})}
    body["metadata"] |= {"annotations": annotations, **metadata}
    return node_waits.is_required(daemonsets.daemonset_of(body))


def test_an_agent_is_required_by_its_annotation() -> None:
    assert required()
    assert not required(annotations={names.REQUIRED_FOR_WORK: "false"})
    assert not node_waits.is_required(daemonsets.daemonset_of(daemonset()))


def test_an_agent_that_is_being_deleted_is_not_required() -> None:
    assert not required(deletionTimestamp="2027-01-15T08:00:00Z")


def test_an_agent_that_git_requires_needs_no_annotation() -> None:
    plain = daemonset()
    assert node_waits.is_required(daemonsets.daemonset_of(plain), in_git=True)
    plain["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    assert not node_waits.is_required(daemonsets.daemonset_of(plain), in_git=True)


def read(world: RolloutWorld) -> RequiredAgent:
    seen = world.observe()
    return node_waits.agent_of(seen.daemonset, seen.revisions)


def world(**policy: Any) -> RolloutWorld:
    return RolloutWorld({"stages": ["canary", "rest"], **policy}, 4)


def hashes(world: RolloutWorld) -> dict[str, str]:
    """The hash of the pods of each image."""
    seen = world.observe()
    return {
        one.template["spec"]["containers"][0]["image"]: one.hash
        or one.raw["metadata"]["labels"][names.ROLLOUT]
        for one in seen.revisions
    }


def pod(hash: str, *, pinned: bool = False) -> Pod:
    """A pod of the DaemonSet controller, or of a rollout."""
    return Pod(
        "default", "agent-1", "u1", hash=hash, labels={names.ROLLOUT: hash} if pinned else {}
    )


def test_every_pod_of_an_agent_without_a_rollout_policy_counts() -> None:
    agent = node_waits.agent_of(daemonsets.daemonset_of(daemonset()), ())
    assert agent.counts(pod("any"))
    assert agent.templates.stuck == ""


def test_at_rest_the_proven_template_counts() -> None:
    agent = read(there := with_policy(world()))
    assert agent.counts(pod(hashes(there)["agent:1"]))
    assert not agent.counts(pod("other"))


def test_during_a_rollout_the_proven_template_and_the_pods_of_the_rollout_count() -> None:
    there = with_policy(world())
    there.commit(SECOND)
    agent, of = read(there), hashes(there)
    assert agent.counts(pod(of["agent:1"]))
    assert agent.counts(pod(of[SECOND], pinned=True))
    assert agent.templates.target == {of[SECOND]}


def test_a_pod_of_an_edit_to_the_target_does_not_count() -> None:
    there = with_policy(world())
    there.commit(SECOND)
    there.edit(SECOND)
    agent, of = read(there), hashes(there)
    assert not agent.counts(pod(of[SECOND]))
    assert agent.counts(pod(of[SECOND], pinned=True))


def test_an_early_template_counts_on_every_node() -> None:
    there = with_policy(world())
    there.commit(SECOND)
    seen = there.observe()
    (target,) = (one for one in seen.revisions if not target_revisions.is_promoted(one))
    record = target_revisions.encoded(RolloutRecord(early=True))
    there.revisions[target.name]["metadata"]["annotations"][names.ROLLOUT_RECORD] = record
    assert read(there).counts(pod(hashes(there)[SECOND]))


def test_after_a_halt_only_the_proven_template_counts() -> None:
    there = with_policy(world())
    there.bad_images.add(SECOND)
    there.commit(SECOND)
    halted(there)
    agent, of = read(there), hashes(there)
    assert agent.counts(pod(of["agent:1"]))
    assert not agent.counts(pod(of[SECOND], pinned=True))
    assert "halted" in agent.templates.stuck


def test_until_its_target_revision_is_seen_the_proven_template_counts() -> None:
    there = with_policy(world())
    there.body["metadata"]["annotations"][names.TARGET] = "agent-later"
    agent = read(there)
    assert agent.counts(pod(hashes(there)["agent:1"]))
    assert not agent.counts(pod("other"))
    assert agent.templates.stuck == ""


@pytest.mark.parametrize("removed", [(names.PROVEN,), (names.PROVEN, names.TARGET)])
def test_while_no_template_is_proven_no_pod_counts(removed: tuple[str, ...]) -> None:
    there = with_policy(world())
    there.commit(SECOND)
    there.edit("agent:9")
    for name in removed:
        del there.body["metadata"]["annotations"][name]
    agent = read(there)
    assert not any(agent.counts(pod(hash)) for hash in hashes(there).values())


@pytest.mark.parametrize("text", [None, "{}x"])
def test_an_edit_with_a_policy_that_can_not_be_read_does_not_count(text: str | None) -> None:
    there = with_policy(world())
    there.edit(SECOND)
    there.settle()
    there.body["metadata"]["annotations"].pop(names.ROLLOUT_POLICY)
    if text is not None:
        there.body["metadata"]["annotations"][names.ROLLOUT_POLICY] = text
    agent, of = read(there), hashes(there)
    assert agent.counts(pod(of["agent:1"]))
    assert not agent.counts(pod(of[SECOND]))


def test_a_target_that_was_removed_is_not_proven() -> None:
    there = with_policy(world())
    there.commit(SECOND)
    there.edit(SECOND)
    annotations = there.body["metadata"]["annotations"]
    annotations[names.PHASE] = "Progressing"
    del annotations[names.TARGET]
    agent, of = read(there), hashes(there)
    assert agent.counts(pod(of["agent:1"]))
    assert not agent.counts(pod(of[SECOND]))


@pytest.mark.parametrize("stuck", [True, False])
def test_a_suspended_agent_is_stuck(stuck: bool) -> None:
    body = daemonset()
    body["metadata"]["annotations"][names.SUSPEND] = str(stuck).lower()
    agent = node_waits.agent_of(daemonsets.daemonset_of(body), ())
    assert bool(agent.templates.stuck) is stuck
    assert agent.counts(pod("any"))


def test_an_agent_that_is_not_applied_is_placed_by_its_manifest() -> None:
    body = daemonset()
    body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "gpu"}
    agent = node_waits.unapplied_agent(body, 5.0)
    assert (agent.key.name, agent.since) == ("agent", 5.0)
    assert agent.placer.node_selector == {"pool": "gpu"}
    assert "not applied" in agent.templates.stuck
    assert not agent.counts(pod("1"))


def with_policy(world: RolloutWorld) -> RolloutWorld:
    """The world with the annotation of its policy, which the deployer writes."""
    text = target_revisions.policy_text({"stages": ["canary", "rest"]}, ())
    world.body["metadata"]["annotations"][names.ROLLOUT_POLICY] = text
    return world


def halted(world: RolloutWorld) -> None:
    for _ in range(200):
        world.pass_time()
        seen = world.observe()
        target = target_revisions.target_of(seen.daemonset, seen.revisions)
        assert target is not None
        if target_revisions.record_of(seen.revisions, target).halt is not None:
            return
    raise AssertionError("the rollout was not halted")
