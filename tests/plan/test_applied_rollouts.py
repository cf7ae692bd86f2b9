"""The rollouts of an applied commit: halted ones, stages that need an approval, and what approves
them.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.live import Live, Revision
from gitops_ds.core.objects import CommitId, Digest, Key, Path
from gitops_ds.core.plain_text import line
from gitops_ds.core.rollouts.halted_rollout import HaltedRollout
from gitops_ds.core.rollouts.proven_templates import (
    RecordedTemplate,
    TemplateHistory,
    TemplateProof,
)
from gitops_ds.core.rollouts.rollout_policy import Revert
from gitops_ds.core.rollouts.staged_rollout import (
    Approver,
    Halt,
    RolloutRecord,
    StageApproval,
    WaitingStage,
)
from gitops_ds.core.sources.bundle import ClusterFacts, ManifestOrigin, Origin, Pointer
from gitops_ds.core.sources.file_places import by_place, files_at
from gitops_ds.core.sources.signatures import Verified
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.rollouts.staging import applied_rollouts, git_template
from gitops_ds.rollouts.state import keys, proofs, rollout_annotations
from tests.plan.staged_objects import (
    KEY,
    bundle,
    live,
    live_object,
    manifest,
    own,
    target,
    template,
)

HALT = Halt(1000.0, "canary", "CrashLoopBackOff on n1")
HALTED = RolloutRecord(halt=HALT)
KNOWN = {names.COMMIT: "c2", keys.SINCE: "c1"}
IDENTITY = proofs.identity(template("2"))
SOURCE = git_template.digest(manifest("2"))
RECORDED = {KEY: TemplateHistory(target=RecordedTemplate(IDENTITY, SOURCE, "c2", "c1"))}
HOLDER = ManifestOrigin(CommitId("c"), "u", "an object of the cluster")
FILES = frozenset({"agents/agent", "agents/agent/daemonset.yaml"})
OTHER = replace(KEY, name="other")
GATED = {"stages": [{"name": "canary"}, {"name": "gpu", "approval": {"from": ["team-a"]}}, "rest"]}


def test_a_halted_rollout_of_the_template_in_git_is_found() -> None:
    halted = target("2", HALTED, annotations={names.COMMIT: "f2", keys.SINCE: "f1"})
    one = bundle(manifest("2"), onFailure={"revert": {"how": "pull-request"}})
    assert list(applied_rollouts.halted(one, live(live_object("1"), halted), RECORDED)) == [
        HaltedRollout(
            daemonset=KEY,
            uid="u1",
            commit=CommitId("c2"),
            since="c1",
            template=Digest(git_template.digest(manifest("2"))),
            files=applied_rollouts.deciding_files(manifest("2"), one),
            halt=HALT,
            revert=Revert(how="pull-request"),
            cluster="main",
            own=FILES,
        )
    ]
    (found,) = applied_rollouts.halted(one, live(None, halted), RECORDED)
    assert found.uid == ""


def test_a_halt_of_a_template_that_the_deployer_did_not_record_does_not_count() -> None:
    one, cluster = bundle(manifest("2")), live(live_object("1"), target("2", HALTED))
    assert len(list(applied_rollouts.halted(one, cluster, RECORDED))) == 1
    assert list(applied_rollouts.halted(one, cluster, {})) == []
    forged = target("3", HALTED, annotations={keys.TEMPLATE_DIGEST: SOURCE})
    assert list(applied_rollouts.halted(one, live(live_object("1"), forged), RECORDED)) == []


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
    assert list(applied_rollouts.halted(one, live(live_object("1"), known), RECORDED)) == []


@pytest.mark.parametrize(
    ("base", "files"),
    [
        ("agents/agent/daemonset.yaml", FILES),
        ("agents/agent/base/ds.yaml", {"agents/agent", "agents/agent/base/ds.yaml"}),
        ("agents/agent.yaml", {"agents/agent.yaml"}),
        ("apps/agent/ds.yaml", {"apps/agent/ds.yaml"}),
    ],
)
def test_the_own_files_of_a_manifest(base: str, files: set[str]) -> None:
    pointers: dict[Path, tuple[Pointer, ...]] = {("spec",): (Pointer("values.yaml", 0, ()),)}
    one = replace(manifest("1"), origin=Origin(Pointer(base, 0, ()), pointers))
    assert applied_rollouts.own_files(one) == files


READ = frozenset(
    {
        "base/kustomization.yaml",
        "base/daemonset.yaml",
        "part/kustomization.yaml",
        "agents/other/chart/Chart.yaml",
    }
)


@pytest.mark.parametrize(
    ("base", "set_by", "file", "decides"),
    [
        # also values that no file has any more
        ("agents/agent/daemonset.yaml", (), "agents/agent/values/main.yaml", True),
        ("agents/agent/daemonset.yaml", (), "environments/production.yaml", True),
        ("agents/agent/daemonset.yaml", (), "environments/test.yaml", False),
        ("agents/agent/daemonset.yaml", (), "clusters/main.yaml", True),
        ("agents/agent/daemonset.yaml", (), "clusters/other.yaml", False),
        ("agents/agent/daemonset.yaml", (), "gitops-ds.yaml", True),
        ("agents/agent/daemonset.yaml", (), "README.md", False),
        ("agents/agent/daemonset.yaml", (), "agents/other/daemonset.yaml", False),
        ("agents/agent/daemonset.yaml", (), "base/kustomization.yaml", False),
        ("agents/agent/source.yaml", (), "base/kustomization.yaml", True),
        # the place of a kustomization or chart, and the files that have no value in the result
        ("base/daemonset.yaml", (), "agents/agent/source.yaml", True),
        ("base/daemonset.yaml", (), "base/kustomization.yaml", True),
        ("base/daemonset.yaml", (), "base/left.yaml", True),
        ("base/daemonset.yaml", (), "part/kustomization.yaml", True),
        ("base/daemonset.yaml", (), "agents/other/chart/Chart.yaml", False),
        ("base/daemonset.yaml", ("agents/other/x.yaml",), "agents/other/chart/t.yaml", True),
    ],
)
def test_the_files_that_decide_a_template(
    base: str, set_by: tuple[str, ...], file: str, decides: bool
) -> None:
    pointers: dict[Path, tuple[Pointer, ...]] = {
        ("spec",): tuple(Pointer(name, 0, ()) for name in set_by)
    }
    one = replace(manifest("1"), origin=Origin(Pointer(base, 0, ()), pointers))
    facts = ClusterFacts("main", "production")
    whole = replace(bundle(one), cluster=facts, consumed=READ)
    places = applied_rollouts.deciding_files(one, whole)
    assert bool(files_at(by_place([file]), places, "")) is decides


def approvals_at(record: RolloutRecord | None, **more: Any) -> list[WaitingStage]:
    """The stages of a rollout to template 2 that need an approval."""
    known = target("2", record, annotations={**KNOWN, keys.APPROVALS: "[]"})
    cluster = live(live_object("1", known.name), own("1"), known)
    one = replace(manifest("2"), **more)
    return list(applied_rollouts.waiting(bundle(one, **GATED), cluster, RECORDED))


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
        files=applied_rollouts.deciding_files(manifest("2"), bundle(**GATED)),
        annotation="[]",
        stages=("canary", "gpu", "rest"),
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
    one = bundle(manifest("2"), stages=stages)
    assert list(applied_rollouts.waiting(one, cluster, RECORDED)) == []


def test_the_facts_of_a_rollout_may_be_unknown() -> None:
    known = target("2", RolloutRecord(passed={"canary": 1.0}))
    old = live_object("1", known.name)
    del old["metadata"]["uid"]
    unknown = {KEY: TemplateHistory(target=RecordedTemplate(IDENTITY, SOURCE))}
    one = bundle(manifest("2"), **GATED)
    (found,) = applied_rollouts.waiting(one, live(old, known), unknown)
    assert (found.owner, found.commit, found.since, found.annotation) == ("", "", "", "")


@pytest.mark.parametrize("recorded", [None, RecordedTemplate("another", SOURCE, "c2")])
def test_a_revision_that_the_deployer_did_not_record_needs_no_approval(
    recorded: RecordedTemplate | None,
) -> None:
    known = target("2", RolloutRecord(passed={"canary": 1.0}), annotations=KNOWN)
    histories, one = {KEY: TemplateHistory(target=recorded)}, bundle(manifest("2"), **GATED)
    cluster = live(live_object("1", known.name), own("1"), known)
    assert list(applied_rollouts.waiting(one, cluster, histories)) == []


def test_the_commit_on_a_revision_decides_about_no_approval() -> None:
    """Who may write the revision could name a commit that was approved before."""
    forged = {names.COMMIT: "f" * 40, keys.SINCE: "f" * 40}
    known = target("2", RolloutRecord(passed={"canary": 1.0}), annotations=forged)
    cluster = live(live_object("1", known.name), own("1"), known)
    (found,) = applied_rollouts.waiting(bundle(manifest("2"), **GATED), cluster, RECORDED)
    assert (found.commit, found.since) == ("c2", "c1")


def test_an_approval_is_by_a_known_approver_and_for_this_target() -> None:
    (stage,) = approvals_at(RolloutRecord(passed={"canary": 1.0}))
    known = {name: Approver(name) for name in ("team-a", "team-b")}
    assert applied_rollouts.approvers_of(stage, known) == (Approver("team-a"),)
    assert applied_rollouts.approvers_of(stage, {}) == ()
    approval = applied_rollouts.approval(stage, known["team-a"], "ada", "commit 1")
    assert approval == StageApproval("gpu", stage.hash, "team-a", "ada", "commit 1")
    text = applied_rollouts.annotation(stage, approval)
    assert rollout_annotations.decoded_approvals(text) == (approval,)


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
    found = applied_rollouts.trailer_flaw(value, commit, STAGE)
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
    found = applied_rollouts.trailer_flaw(value, CommitId("c" * 40), STAGE)
    assert found == flaw if flaw is None else (found or "").startswith(flaw)


def test_commits_that_do_not_count_have_one_message_with_the_trailer_that_does() -> None:
    flaws = {CommitId(f"{number:040x}"): "its trailer names no commit" for number in range(5)}
    text = applied_rollouts.ignored_approvals(flaws, STAGE)
    assert text.startswith("commit 000000000000 does not count (its trailer names no commit), ")
    assert text.endswith(
        f"and 2 more: it needs a commit with `Gitops-Ds-Approve: infra/agent/gpu {COMMIT[:12]}` "
        "that team-gpu signed"
    )
    assert applied_rollouts.ignored_approvals({}, STAGE) == ""


def test_without_a_commit_of_the_rollout_no_trailer_approves() -> None:
    stage = replace(STAGE, commit=CommitId(""))
    assert applied_rollouts.trailer_flaw("infra/agent/gpu", CommitId(""), stage) is None


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
    assert bool(files_at(by_place([file]), expected, path)) is inside


def test_a_template_in_force_is_the_proven_one_or_without_a_policy_the_applied_one() -> None:
    proof = TemplateProof("p", source="proven")
    applied = RecordedTemplate("a", "applied")
    before = {KEY: TemplateHistory(proof), OTHER: TemplateHistory(applied=applied)}
    assert applied_rollouts.proven(before, {}) == {KEY: "proven", OTHER: "applied"}
    both = {KEY: TemplateHistory(replace(proof, source="newer"), applied=applied)}
    assert applied_rollouts.proven(before, both) == {KEY: "newer", OTHER: "applied"}
    unknown = {KEY: TemplateHistory(replace(proof, source="")), OTHER: TemplateHistory()}
    assert applied_rollouts.proven(before, unknown) == {}
