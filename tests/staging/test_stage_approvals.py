"""What approves a stage: trailers, keys, and the annotation."""

from __future__ import annotations

import pytest

from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.plain_text import line
from gitops_ds.core.rollouts.staged_rollout import (
    Approver,
    StageApproval,
    WaitingStage,
)
from gitops_ds.core.sources.signatures import Verified
from gitops_ds.core.values import replace
from gitops_ds.rollouts.approvals import stage_approvals
from gitops_ds.rollouts.state import rollout_annotations

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
    stages=("canary", "gpu", "rest"),
)

OWN, LATER = COMMIT, CommitId("f" * 40)


def test_an_approval_is_by_a_known_approver_and_for_this_target() -> None:
    stage = replace(STAGE, approvers=("team-a",), annotation="[]")
    known = {name: Approver(name) for name in ("team-a", "team-b")}
    assert stage_approvals.approvers_of(stage, known) == (Approver("team-a"),)
    assert stage_approvals.approvers_of(stage, {}) == ()
    approval = stage_approvals.approval(stage, known["team-a"], "ada", "commit 1")
    assert approval == StageApproval("gpu", stage.hash, "team-a", "ada", "commit 1")
    text = stage_approvals.annotation(stage, approval)
    assert rollout_annotations.decoded_approvals(text) == (approval,)


@pytest.mark.parametrize(
    ("value", "commit", "flaw"),
    [
        (f"infra/agent/gpu {COMMIT}", LATER, ""),
        (f"  infra/agent/gpu   {COMMIT.upper()[:12]} ", LATER, ""),
        (f"infra/agent/gpu {COMMIT[:11]}", LATER, "no commit ID of at least 12 digits"),
        (f"infra/agent/gpu {LATER}", LATER, f"names commit {LATER[:12]}"),
        (f"infra/agent/gpu {COMMIT} {COMMIT}", LATER, "no commit ID of at least 12 digits"),
        ("infra/agent/gpu main", LATER, "no commit ID of at least 12 digits"),
        (f"infra/agent/rest {COMMIT}", LATER, None),
        (f"other/agent/gpu {COMMIT}", LATER, None),
        (f"agent/gpu {COMMIT}", LATER, "no namespace"),
        ("infra/agent/gpu", OWN, ""),
        ("infra/agent/gpu", LATER, "names no commit"),
        ("", OWN, None),
    ],
)
def test_a_trailer_approves_the_stage_of_exactly_one_rollout_and_another_states_why_it_does_not(
    value: str, commit: CommitId, flaw: str | None
) -> None:
    found = stage_approvals.trailer_flaw(value, commit, STAGE)
    if flaw:
        assert found is not None
        assert flaw in found
    else:
        assert found == flaw


@pytest.mark.parametrize(
    ("value", "flaw"),
    [
        (
            f"infra/agent/gpus {COMMIT[:12]}",
            'its trailer names stage "gpus"; the stages are canary, gpu, rest',
        ),
        ("infra/agent/", 'its trailer names stage "";'),
        (f"infra/agent/{'x' * 63}", f'its trailer names stage "{"x" * 63}";'),
        (f"infra/agent/{'x' * 64}", f'its trailer names stage "{line("x" * 64, 63)}";'),
        ("infra/agent", "its trailer names no stage; the stages are canary, gpu, rest"),
        (f"agent/gpus {COMMIT[:12]}", "its trailer names no namespace"),
        (f"infra/agent/rest {COMMIT[:12]}", None),
        (f"infra/other/gpus {COMMIT[:12]}", None),
        ("infra/agents/gpus", None),
    ],
)
def test_a_trailer_with_a_stage_that_does_not_exist_is_ignored_with_those_that_do(
    value: str, flaw: str | None
) -> None:
    found = stage_approvals.trailer_flaw(value, CommitId("c" * 40), STAGE)
    assert found == flaw if flaw is None else (found or "").startswith(flaw)


def test_commits_that_do_not_count_have_one_message_with_the_trailer_that_does() -> None:
    flaws = {CommitId(f"{number:040x}"): "its trailer names no commit" for number in range(5)}
    text = stage_approvals.ignored_approvals(flaws, STAGE)
    assert text.startswith("commit 000000000000 does not count (its trailer names no commit), ")
    assert text.endswith(
        f"and 2 more: it needs a commit with `Gitops-Ds-Approve: infra/agent/gpu {COMMIT[:12]}` "
        "that team-gpu signed"
    )
    assert stage_approvals.ignored_approvals({}, STAGE) == ""


def test_without_a_commit_of_the_rollout_no_trailer_approves() -> None:
    stage = replace(STAGE, commit=CommitId(""))
    assert stage_approvals.trailer_flaw("infra/agent/gpu", CommitId(""), stage) is None


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
    approver = stage_approvals.by_key(approvers, Verified(signer, key))
    assert (approver.name if approver else None) == name


def test_the_annotation_keeps_other_stages_of_this_target_only() -> None:
    known = [
        StageApproval("canary", "5d9f", "team-a", "ada", "commit 1"),
        StageApproval("canary", "other", "team-a", "ada", "commit 1"),
        StageApproval("gpu", "5d9f", "team-a", "eve", "commit 2"),
    ]
    text = rollout_annotations.encoded_approvals(known)
    stage = replace(STAGE, annotation=text)
    assert stage_approvals.present(stage) == (known[2],)
    approval = StageApproval("gpu", "5d9f", "team-gpu", "ada", "commit 3")
    assert rollout_annotations.decoded_approvals(stage_approvals.annotation(stage, approval)) == (
        known[0],
        approval,
    )
    assert rollout_annotations.decoded_approvals(stage_approvals.annotation(stage, None)) == (
        known[0],
    )
