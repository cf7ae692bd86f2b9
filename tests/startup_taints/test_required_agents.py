"""The required agents of a cluster, by the record of what was applied: their nodes, and the pods
that are the agent.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.daemonset import DaemonSet, Pod
from gitops_ds.core.objects import Body, Key
from gitops_ds.core.required_in_git import RequiredInGit
from gitops_ds.core.rollouts.proven_templates import TemplateHistory, TemplateProof
from gitops_ds.core.rollouts.staged_rollout import RolloutRecord
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import daemonsets
from gitops_ds.rollouts.state import keys, proofs, target_revisions
from gitops_ds.startup_taints import required_agents
from gitops_ds.startup_taints.required_agents import RequiredAgent
from tests.daemonset.world import daemonset
from tests.rollouts.rollout_world import SECOND, RolloutWorld
from tests.startup_taints.plain import TOLERATES_ALL, content, in_git, node, state

KEY = Key("apps", "DaemonSet", "logging", "agent")
NEEDED = "requiredDuringSchedulingIgnoredDuringExecution"
GPU = {"key": "pool", "operator": "In", "values": ["gpu"]}


def read(
    world: RolloutWorld, history: TemplateHistory | None = None, targets: bool = True
) -> RequiredAgent:
    """The agent by the record of what the world's deployer did, `history` another one."""
    seen = world.observe()
    names_of = [
        revision.name for revision in seen.revisions if not target_revisions.is_promoted(revision)
    ]
    required = in_git(
        FIRST,
        history or world_history(world),
        staged=True,
        targets=frozenset(names_of if targets else ()),
    )
    return required_agents.agent_of(required, seen.daemonset, seen.revisions)


def world_history(world: RolloutWorld) -> TemplateHistory:
    """The first template is the proven one."""
    hash = hashes(world).get("agent:1", "")
    template = FIRST["spec"]["template"]
    return TemplateHistory(TemplateProof(proofs.identity(template), hash=hash), template)


FIRST = daemonset()


def world(**policy: Any) -> RolloutWorld:
    return RolloutWorld({"stages": ["canary", "rest"], **policy}, 4)


def hashes(world: RolloutWorld) -> dict[str, str]:
    """The hash of the pods of each image."""
    seen = world.observe()
    return {
        revision.template["spec"]["containers"][0]["image"]: revision.hash
        or revision.raw["metadata"]["labels"][names.ROLLOUT]
        for revision in seen.revisions
    }


def pod(hash: str, image: str = "agent:1", *, pinned: bool = False, **container: Any) -> Pod:
    """A pod of the DaemonSet controller, or of a rollout."""
    labels = {names.ROLLOUT: hash} if pinned else {}
    runs = content(image, **container)
    return Pod("default", "agent-1", "u1", hash=hash, labels=labels, content=runs)


def counts(agent: RequiredAgent, pod: Pod, *mirrors: str) -> bool:
    return agent.template_of(pod, mirrors) is not None


def test_at_rest_the_proven_template_counts() -> None:
    agent = read(there := with_policy(world()))
    assert counts(agent, pod(hashes(there)["agent:1"]))
    assert not counts(agent, pod("other"))


def test_during_a_rollout_the_proven_template_and_the_pods_of_the_rollout_count() -> None:
    there = with_policy(world())
    there.commit(SECOND)
    agent, of = read(there), hashes(there)
    assert counts(agent, pod(of["agent:1"]))
    assert counts(agent, pod(of[SECOND], SECOND, pinned=True))
    assert agent.templates.targets == {of[SECOND]}


def test_a_pod_of_an_edit_to_the_target_does_not_count() -> None:
    there = with_policy(world())
    there.commit(SECOND)
    there.edit(SECOND)
    agent, of = read(there), hashes(there)
    assert not counts(agent, pod(of[SECOND], SECOND))
    assert counts(agent, pod(of[SECOND], SECOND, pinned=True))


def test_an_early_template_counts_on_every_node() -> None:
    there = with_policy(world())
    there.commit(SECOND)
    seen = there.observe()
    (target,) = (
        revision for revision in seen.revisions if not target_revisions.is_promoted(revision)
    )
    record = target_revisions.encoded(RolloutRecord(early=True))
    there.revisions[target.name]["metadata"]["annotations"][keys.ROLLOUT_RECORD] = record
    agent, of = read(there), hashes(there)
    assert counts(agent, pod(of[SECOND], SECOND))
    assert agent.templates.targets == {of[SECOND]}


def test_after_a_halt_only_the_proven_template_counts() -> None:
    there = with_policy(world())
    there.bad_images.add(SECOND)
    there.commit(SECOND)
    halted(there)
    agent, of = read(there), hashes(there)
    assert counts(agent, pod(of["agent:1"]))
    assert not counts(agent, pod(of[SECOND], SECOND, pinned=True))
    assert "halted" in agent.templates.note
    assert agent.templates.stuck


def test_until_its_target_revision_is_seen_the_proven_template_counts() -> None:
    there = with_policy(world())
    there.body["metadata"]["annotations"][keys.TARGET] = "agent-later"
    agent = read(there)
    assert counts(agent, pod(hashes(there)["agent:1"]))
    assert not counts(agent, pod("other"))
    assert not agent.templates.stuck


def test_before_a_template_is_recorded_as_proven_no_pod_counts() -> None:
    there = with_policy(world())
    agent = read(there, TemplateHistory())
    assert not counts(agent, pod(hashes(there)["agent:1"]))


ANNOTATIONS = (keys.PROVEN, keys.TARGET, keys.ROLLOUT_POLICY, keys.PHASE, names.SUSPEND)


@pytest.mark.parametrize("name", ANNOTATIONS)
@pytest.mark.parametrize("text", [None, "{}x", "true"])
def test_no_annotation_of_the_daemonset_makes_another_template_count(
    name: str, text: str | None
) -> None:
    there = with_policy(world())
    there.edit(SECOND)
    there.settle()
    there.body["metadata"]["annotations"].pop(name, None)
    if text is not None:
        there.body["metadata"]["annotations"][name] = text
    agent, of = read(there), hashes(there)
    assert counts(agent, pod(of["agent:1"]))
    assert not counts(agent, pod(of[SECOND], SECOND))
    assert not agent.templates.stuck


def test_a_forged_proof_of_an_edit_does_not_count() -> None:
    there = with_policy(world())
    history = world_history(there)
    there.edit(SECOND)
    there.settle()
    there.prove(SECOND, there.now)
    agent, of = read(there, history), hashes(there)
    assert not counts(agent, pod(of[SECOND], SECOND))
    assert counts(agent, pod(of["agent:1"]))


def test_a_target_that_was_not_applied_does_not_count() -> None:
    """The controller of Kubernetes makes a revision of an edit, with the labels of its template."""
    there = with_policy(world())
    there.commit(SECOND)
    agent, of = read(there, targets=False), hashes(there)
    assert not counts(agent, pod(of[SECOND], SECOND, pinned=True))
    assert counts(agent, pod(of["agent:1"]))


@pytest.mark.parametrize(
    ("image", "container"),
    [
        ("pause:3", {}),
        ("agent:2", {}),
        ("registry.example.com/agent:1", {}),
        ("agent:1", {"command": ["sleep", "1d"]}),
        ("agent:1", {"args": ["--skip"]}),
        ("agent:1", {"workingDir": "/tmp"}),
        ("agent:1", {"name": "other"}),
    ],
)
@pytest.mark.parametrize("staged", [True, False])
def test_a_pod_with_the_labels_of_the_agent_that_runs_something_else_does_not_count(
    image: str, container: dict[str, Any], staged: bool
) -> None:
    there = with_policy(world())
    agent = read(there) if staged else required_agents.agent_of(in_git(FIRST), live(FIRST))
    forged = pod(hashes(there)["agent:1"], image, **container)
    assert not counts(agent, forged)
    assert agent.difference(forged)
    assert counts(agent, pod(hashes(there)["agent:1"]))


def test_without_a_rollout_policy_every_recorded_template_counts() -> None:
    """Pods of the template before stay until the rolling update replaces them."""
    second = required_agents.record_of(daemonset(SECOND), before=required_agents.record_of(FIRST))
    required = RequiredInGit(KEY, second, second)
    agent = required_agents.agent_of(required, live(daemonset("edited:1")))
    assert counts(agent, pod("any"))
    assert counts(agent, pod("any", SECOND))
    assert not counts(agent, pod("any", "edited:1"))


def test_as_many_templates_are_recorded_as_are_rolled_back_to() -> None:
    record = required_agents.record_of(FIRST)
    for number in range(2, 30):
        record = required_agents.record_of(daemonset(f"agent:{number}"), before=record)
    assert len(record.contents) == 10
    assert record.contents[0] == content("agent:29")


def test_only_a_commit_makes_a_suspended_agent_stuck() -> None:
    suspended = daemonset()
    suspended["metadata"]["annotations"][names.SUSPEND] = "true"
    by_commit = required_agents.agent_of(in_git(suspended), live(suspended))
    assert by_commit.templates.stuck
    assert counts(by_commit, pod("any"))
    by_edit = required_agents.agent_of(in_git(FIRST), live(suspended))
    assert not by_edit.templates.stuck


# What a person who may only write DaemonSets can change about the nodes of an agent.
EDITS: list[dict[str, Any]] = [
    {"nodeSelector": {"no": "where"}},
    {"nodeName": "other"},
    {"tolerations": []},
    {"affinity": {"nodeAffinity": {NEEDED: {"nodeSelectorTerms": [{"matchExpressions": [GPU]}]}}}},
]


@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_no_edit_of_the_daemonset_removes_a_node_from_those_that_wait(edit: dict[str, Any]) -> None:
    body = daemonset()
    body["spec"]["template"]["spec"]["tolerations"] = TOLERATES_ALL
    edited = copy.deepcopy(body)
    edited["spec"]["template"]["spec"] |= edit
    edited["spec"]["minReadySeconds"] = 10**6
    agent = required_agents.agent_of(in_git(body), live(edited))
    assert agent.is_required_on(node())
    assert not agent.is_edited_onto(node())
    assert agent.min_ready_seconds == 0


def test_a_node_that_only_an_edit_selects_waits_for_a_limited_time() -> None:
    body = daemonset()
    body["spec"]["template"]["spec"] |= {"nodeSelector": {"a": "b"}, "tolerations": TOLERATES_ALL}
    edited = copy.deepcopy(body)
    del edited["spec"]["template"]["spec"]["nodeSelector"]
    agent = required_agents.agent_of(in_git(body), live(edited))
    assert not agent.is_required_on(node())
    early, late = (state(node(), agents=(agent,), after=after) for after in (299, 301))
    assert [wait.stuck for wait in early.waits] == [True]
    assert late.is_released


def test_with_a_rollout_policy_the_proven_template_selects_the_nodes() -> None:
    there = with_policy(world())
    wanted = daemonset()
    wanted["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "later"}
    required = in_git(wanted, world_history(there), staged=True)
    agent = required_agents.agent_of(required, live(FIRST))
    assert [placer.node_selector for placer in agent.placers] == [{}]


MISSING = "its DaemonSet is not applied"


@pytest.mark.parametrize(
    ("is_applied", "followed", "note"),
    [(False, True, MISSING), (True, False, MISSING), (True, True, "its DaemonSet was deleted")],
)
@pytest.mark.parametrize("deleting", [True, False])
def test_only_a_daemonset_that_was_never_applied_is_waited_for_with_a_limit(
    is_applied: bool, followed: bool, note: str, deleting: bool
) -> None:
    body = daemonset()
    body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "gpu"}
    required = in_git(body, followed=followed)
    required = required if is_applied else replace(required, applied=None)
    leaving = copy.deepcopy(body)
    leaving["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    agent = required_agents.agent_of(required, live(leaving) if deleting else None, since=5.0)
    assert (agent.templates.note, agent.templates.stuck) == (note, note == MISSING)
    assert agent.since == 5.0
    assert agent.placers[0].node_selector == {"pool": "gpu"}
    assert not counts(agent, pod("1"))


def live(body: Body) -> DaemonSet:
    return daemonsets.daemonset_of(body)


def with_policy(world: RolloutWorld) -> RolloutWorld:
    """The world with the annotation of its policy, which the deployer writes."""
    text = target_revisions.policy_text({"stages": ["canary", "rest"]}, ())
    world.body["metadata"]["annotations"][keys.ROLLOUT_POLICY] = text
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
