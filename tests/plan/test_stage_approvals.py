"""What approves a stage: the value of a trailer, and the key of a signature."""

from __future__ import annotations

import pytest

from gitops_ds.apimachinery.rollouts import rollout_annotations
from gitops_ds.model.objects import CommitId, Key
from gitops_ds.model.rollouts.staged_rollout import Approver, StageApproval, WaitingStage
from gitops_ds.model.sources.signatures import Verified
from gitops_ds.model.values import replace
from gitops_ds.plan.rollouts import applied_rollouts

COMMIT = CommitId("0123456789abcdef" * 2 + "01234567")
STAGE = WaitingStage(
    daemonset=Key("apps", "DaemonSet", "infra", "agent"),
    owner="u1",
    revision="agent-5d9f",
    uid="u2",
    hash="5d9f",
    commit=COMMIT,
    since="",
    stage="gpu",
    approvers=("team-gpu",),
)
OWN, LATER = COMMIT, CommitId("f" * 40)


@pytest.mark.parametrize(
    ("value", "commit", "approves"),
    [
        (f"infra/agent/gpu {COMMIT}", LATER, True),
        (f"  infra/agent/gpu   {COMMIT.upper()[:12]} ", LATER, True),
        (f"infra/agent/gpu {COMMIT[:11]}", LATER, False),
        (f"infra/agent/gpu {LATER}", LATER, False),
        (f"infra/agent/gpu {COMMIT} {COMMIT}", LATER, False),
        (f"infra/agent/rest {COMMIT}", LATER, False),
        (f"other/agent/gpu {COMMIT}", LATER, False),
        (f"agent/gpu {COMMIT}", LATER, False),
        ("infra/agent/gpu", OWN, True),
        ("infra/agent/gpu", LATER, False),
        ("", OWN, False),
    ],
)
def test_a_trailer_approves_the_stage_of_exactly_one_rollout(
    value: str, commit: CommitId, approves: bool
) -> None:
    assert applied_rollouts.names_stage(value, commit, STAGE) is approves


def test_without_a_commit_of_the_rollout_no_trailer_approves() -> None:
    stage = replace(STAGE, commit=CommitId(""))
    assert not applied_rollouts.names_stage("infra/agent/gpu", CommitId(""), stage)


@pytest.mark.parametrize(
    ("signer", "key", "name"),
    [
        ("ada@example.com", "SHA256:x", "team-gpu"),
        ("eve@example.com", "SHA256:ada", "team-gpu"),
        ("eve@example.com", "SHA256:eve", None),
        ("ada@example.com", "0123ABCD", None),  # the user id of an OpenPGP key
        ("eve", "F00D", "team-b"),
        ("", "", None),
    ],
)
def test_the_key_of_an_approver_approves(signer: str, key: str, name: str | None) -> None:
    approvers = (
        Approver("team-gpu", frozenset({"ada@example.com", "SHA256:ada", ""})),
        Approver("team-b", frozenset({"F00D"})),
    )
    approver = applied_rollouts.by_key(approvers, Verified(signer, key))
    assert (approver.name if approver else None) == name


def test_the_annotation_keeps_other_stages_of_this_target_only() -> None:
    known = [
        StageApproval("canary", "5d9f", "team-a", "ada", "commit 1"),
        StageApproval("canary", "other", "team-a", "ada", "commit 1"),
        StageApproval("gpu", "5d9f", "team-a", "eve", "commit 2"),
    ]
    text = rollout_annotations.encoded_approvals(known)
    stage = replace(STAGE, annotation=text)
    assert applied_rollouts.present(stage) == (known[2],)
    approval = StageApproval("gpu", "5d9f", "team-gpu", "ada", "commit 3")
    assert rollout_annotations.decoded_approvals(applied_rollouts.annotation(stage, approval)) == (
        known[0],
        approval,
    )
    assert rollout_annotations.decoded_approvals(applied_rollouts.annotation(stage, None)) == (
        known[0],
    )


@pytest.mark.parametrize(
    ("file", "path", "inside"),
    [
        ("agents/agent/x.yaml", "", True),
        ("agents/agent", "", True),
        ("agents/agent-2/x.yaml", "", False),
        ("sub/agents/agent/x.yaml", "sub/", True),
        ("agents/agent/x.yaml", "sub", False),
        ("clusters/main.yaml", ".", True),
    ],
)
def test_the_files_of_a_template_are_below_the_followed_folder(
    file: str, path: str, inside: bool
) -> None:
    expected = {"agents/agent", "clusters/main.yaml"}
    assert applied_rollouts.touches([file], expected, path) is inside
