"""The rollouts that a plan finds in the cluster: halted ones, stages that need an approval, and
those that end first; and the commits without a new template.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.apimachinery import revisions
from gitops_ds.apimachinery.rollouts import rollout_annotations
from gitops_ds.deployer import wave_gate
from gitops_ds.model import names
from gitops_ds.model.live import Live, Revision
from gitops_ds.model.objects import CommitId, Digest, Key, Path
from gitops_ds.model.rollouts import rollout_policy
from gitops_ds.model.rollouts.halted_rollout import HaltedRollout
from gitops_ds.model.rollouts.rollout_policy import Revert
from gitops_ds.model.rollouts.staged_rollout import (
    Approver,
    Halt,
    RolloutRecord,
    StageApproval,
    WaitingStage,
)
from gitops_ds.model.sources.bundle import ManifestOrigin, Origin, Pointer
from gitops_ds.model.values import replace
from gitops_ds.plan.rollouts import applied_rollouts, staging, targets
from tests.plan.staged_objects import KEY, bundle, live, live_object, manifest, own, target

HALT = Halt(1000.0, "canary", "CrashLoopBackOff on n1")
HALTED = RolloutRecord(halt=HALT)
KNOWN = {names.COMMIT: "c2", names.SINCE: "c1"}
HOLDER = ManifestOrigin(CommitId("c"), "u", "an object of the cluster")
FILES = frozenset({"agents/agent", "agents/agent/daemonset.yaml"})
GATED = {"stages": [{"name": "canary"}, {"name": "gpu", "approval": {"from": ["team-a"]}}, "rest"]}


def test_a_halted_rollout_of_the_template_in_git_is_found() -> None:
    halted = target("2", HALTED, annotations=KNOWN)
    one = bundle(manifest("2"), onFailure={"revert": {"how": "pull-request"}})
    assert list(applied_rollouts.halted(one, live(live_object("1"), halted))) == [
        HaltedRollout(
            daemonset=KEY,
            uid="u1",
            commit=CommitId("c2"),
            since="c1",
            template=Digest(staging.template_digest(manifest("2"))),
            files=FILES,
            halt=HALT,
            revert=Revert(how="pull-request"),
            cluster="main",
        )
    ]
    bare = target("2", HALTED)
    (found,) = applied_rollouts.halted(one, live(None, bare))
    assert (found.uid, found.commit, found.since) == ("", "", "")


@pytest.mark.parametrize(
    ("git", "holder", "known"),
    [
        ("2", None, target("2")),
        ("3", None, target("2", HALTED)),  # another template
        ("2", HOLDER, target("2", HALTED)),  # no commit brought it
    ],
)
def test_other_rollouts_are_not_halted(
    git: str, holder: ManifestOrigin | None, known: Revision
) -> None:
    one = bundle(replace(manifest(git), holder=holder))
    assert list(applied_rollouts.halted(one, live(live_object("1"), known))) == []


@pytest.mark.parametrize(
    ("base", "set_by", "files"),
    [
        ("agents/agent/daemonset.yaml", (), FILES),
        ("agents/agent/base/ds.yaml", (), {"agents/agent", "agents/agent/base/ds.yaml"}),
        ("agents/agent.yaml", (), {"agents/agent.yaml"}),
        ("apps/agent/ds.yaml", (), {"apps/agent/ds.yaml"}),
        (
            "agents/agent/daemonset.yaml",
            ("values.yaml", "prod.yaml"),
            {*FILES, "values.yaml", "prod.yaml"},
        ),
    ],
)
def test_the_files_of_a_manifest(base: str, set_by: tuple[str, ...], files: set[str]) -> None:
    pointers: dict[Path, tuple[Pointer, ...]] = {
        ("spec",): tuple(Pointer(name, 0, ()) for name in set_by)
    }
    one = replace(manifest("1"), origin=Origin(Pointer(base, 0, ()), pointers))
    assert applied_rollouts.files_of(one) == files


def approvals_at(record: RolloutRecord | None, **more: Any) -> list[WaitingStage]:
    """The stages of a rollout to template 2 that need an approval."""
    known = target("2", record, annotations={**KNOWN, names.APPROVALS: "[]"})
    cluster = live(live_object("1", known.name), own("1"), known)
    one = replace(manifest("2"), **more)
    return list(applied_rollouts.waiting(bundle(one, **GATED), cluster))


def test_the_first_stage_that_is_not_passed_needs_its_approval() -> None:
    known = target("2")
    (found,) = approvals_at(RolloutRecord(passed={"canary": 1.0}))
    assert found == WaitingStage(
        daemonset=KEY,
        owner="u1",
        revision=known.name,
        uid="uid-2",
        hash=revisions.labels_of(known)[names.ROLLOUT],
        commit=CommitId("c2"),
        since="c1",
        stage="gpu",
        approvers=("team-a",),
        files=FILES,
        annotation="[]",
    )


@pytest.mark.parametrize(
    ("record", "more"),
    [
        (None, {}),  # the canary needs none
        (RolloutRecord(passed={"canary": 1.0, "gpu": 2.0}), {}),
        (RolloutRecord(passed={"canary": 1.0, "gpu": 2.0, "rest": 3.0}), {}),
        (RolloutRecord(passed={"canary": 1.0}, halt=HALT), {}),
        (RolloutRecord(passed={"canary": 1.0}), {"holder": HOLDER}),
    ],
)
def test_no_other_stage_needs_an_approval(
    record: RolloutRecord | None, more: dict[str, Any]
) -> None:
    assert approvals_at(record, **more) == []


@pytest.mark.parametrize(
    "cluster",
    [
        live(None, target("2")),
        live(live_object("1"), own("1"), target("2")),  # no target
        live(live_object("1", "agent-unknown"), own("1"), target("2")),
        live(live_object("2"), own("2")),  # it has the template
    ],
)
def test_without_a_rollout_no_stage_needs_an_approval(cluster: Live) -> None:
    stages = [{"name": "canary", "approval": {"from": ["team-a"]}}]
    assert list(applied_rollouts.waiting(bundle(manifest("2"), stages=stages), cluster)) == []


def test_the_facts_of_a_rollout_may_be_unknown() -> None:
    known = target("2", RolloutRecord(passed={"canary": 1.0}))
    old = live_object("1", known.name)
    del old["metadata"]["uid"]
    (found,) = applied_rollouts.waiting(bundle(manifest("2"), **GATED), live(old, known))
    assert (found.owner, found.commit, found.since, found.annotation) == ("", "", "", "")


def test_an_approval_is_by_a_known_approver_and_for_this_target() -> None:
    (stage,) = approvals_at(RolloutRecord(passed={"canary": 1.0}))
    known = {name: Approver(name) for name in ("team-a", "team-b")}
    assert applied_rollouts.approvers_of(stage, known) == (Approver("team-a"),)
    assert applied_rollouts.approvers_of(stage, {}) == ()
    approval = applied_rollouts.approval(stage, known["team-a"], "ada", "commit 1")
    assert approval == StageApproval("gpu", stage.hash, "team-a", "ada", "commit 1")
    text = applied_rollouts.annotation(stage, approval)
    assert rollout_annotations.decoded_approvals(text) == (approval,)


FINISH = rollout_policy.decode({"supersede": "finish-first"})
TWO, THREE = target("2"), target("3")
HASH = revisions.labels_of(TWO)[names.ROLLOUT]
HELD = {names.HALTED: f'[{{"hash":"{HASH}","commit":"c","at":1.0}}]'}


@pytest.mark.parametrize(
    ("old", "in_git", "current", "first"),
    [
        (live_object("1"), THREE, TWO, True),
        (live_object("1"), None, TWO, True),
        (live_object("1"), TWO, TWO, False),  # Git has it
        (live_object("1"), THREE, None, False),
        (live_object("1"), THREE, target("2", HALTED), False),
        (live_object("1", annotations=HELD), THREE, TWO, False),
        (live_object("1", annotations=HELD), TWO, THREE, True),
    ],
)
def test_a_rollout_that_can_end_by_itself_ends_first(
    old: dict[str, Any], in_git: Revision | None, current: Revision | None, first: bool
) -> None:
    found = targets.finishing_first(old, in_git, current, FINISH)
    assert found == (current if first else None)
    newest = rollout_policy.decode({})
    assert targets.finishing_first(old, in_git, current, newest) is None


def source(policy: str) -> dict[str, dict[str, Any]]:
    return {"agent": {"stages": [policy]}} if policy else {}


OTHER = Key("", "ConfigMap", "infra", "other")


@pytest.mark.parametrize(
    ("tip", "applied", "earlier", "has_only"),
    [
        ("2", "2", "1", True),
        ("1", "2", "1", True),
        ("3", "2", "1", False),
        ("", "2", "1", False),  # the agent is gone
        ("", "2", "", True),
        ("", "", "1", True),
        ("1", "", "1", True),
        ("1", "", "2", False),
        ("1 a", "2", "1 a", True),
        ("1 a", "2", "1", False),
        ("1", "2", "1 a", False),
        ("1 a", "1", "1", False),
        ("1 a", "1 a", "1", True),
        ("1+", "1", "1", False),  # another object of the agent
        ("1", "1+", "1", True),
        ("1", "1+", "2", False),
    ],
)
def test_a_commit_has_only_manifests_that_the_cluster_had(
    tip: str, applied: str, earlier: str, has_only: bool
) -> None:
    """Of each commit the template, a `+` for a further object, and the policy."""

    def at(commit: str) -> Any:
        tag, _, policy = commit.partition(" ")
        some = [manifest(tag.removesuffix("+"))] if tag else []
        some += [manifest("1", OTHER)] if tag.endswith("+") else []
        return replace(bundle(*some), rollouts=source(policy))

    assert wave_gate._has_only(at(tip), at(applied), at(earlier)) is has_only


def test_each_agent_may_have_another_commit() -> None:
    def at(first: str, second: str) -> Any:
        other = manifest(second, replace(KEY, name="other"), agent="other")
        return bundle(manifest(first), other)

    assert wave_gate._has_only(at("1", "2"), at("2", "2"), at("1", "1"))
    assert not wave_gate._has_only(at("1", "3"), at("1", "2"), at("1", "1"))
    assert not wave_gate._has_only(bundle(manifest("1")), at("1", "2"), at("1", "3"))
