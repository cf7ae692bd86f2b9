"""The stages of the rollouts of an applied commit that need an approval."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.live import Live
from gitops_ds.core.objects import CommitId
from gitops_ds.core.rollouts.proven_templates import (
    RecordedTemplate,
    TemplateHistory,
)
from gitops_ds.core.rollouts.staged_rollout import (
    Halt,
    RolloutRecord,
    WaitingStage,
)
from gitops_ds.core.sources.bundle import ManifestOrigin
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.rollouts.approvals import waiting_stages
from gitops_ds.rollouts.causes import template_digests, template_files
from gitops_ds.rollouts.state import keys, proofs
from tests.staging.staged_objects import (
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
KNOWN = {names.COMMIT: "c2", keys.SINCE: "c1"}
IDENTITY = proofs.identity(template("2"))
SOURCE = template_digests.digest(manifest("2"))
RECORDED = {KEY: TemplateHistory(target=RecordedTemplate(IDENTITY, SOURCE, "c2", "c1"))}
HOLDER = ManifestOrigin(CommitId("c"), "u", "an object of the cluster")
GATED = {"stages": [{"name": "canary"}, {"name": "gpu", "approval": {"from": ["team-a"]}}, "rest"]}


def approvals_at(record: RolloutRecord | None, **more: Any) -> list[WaitingStage]:
    """The stages of a rollout to template 2 that need an approval."""
    known = target("2", record, annotations={**KNOWN, keys.APPROVALS: "[]"})
    cluster = live(live_object("1", known.name), own("1"), known)
    one = replace(manifest("2"), **more)
    return list(waiting_stages.waiting(bundle(one, **GATED), cluster, RECORDED))


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
        files=template_files.deciding(manifest("2"), bundle(**GATED)),
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
    assert list(waiting_stages.waiting(one, cluster, RECORDED)) == []


def test_the_facts_of_a_rollout_may_be_unknown() -> None:
    known = target("2", RolloutRecord(passed={"canary": 1.0}))
    old = live_object("1", known.name)
    del old["metadata"]["uid"]
    unknown = {KEY: TemplateHistory(target=RecordedTemplate(IDENTITY, SOURCE))}
    one = bundle(manifest("2"), **GATED)
    (found,) = waiting_stages.waiting(one, live(old, known), unknown)
    assert (found.owner, found.commit, found.since, found.annotation) == ("", "", "", "")


@pytest.mark.parametrize("recorded", [None, RecordedTemplate("another", SOURCE, "c2")])
def test_a_revision_that_the_deployer_did_not_record_needs_no_approval(
    recorded: RecordedTemplate | None,
) -> None:
    known = target("2", RolloutRecord(passed={"canary": 1.0}), annotations=KNOWN)
    histories, one = {KEY: TemplateHistory(target=recorded)}, bundle(manifest("2"), **GATED)
    cluster = live(live_object("1", known.name), own("1"), known)
    assert list(waiting_stages.waiting(one, cluster, histories)) == []


def test_the_commit_on_a_revision_decides_about_no_approval() -> None:
    """Who may write the revision could name a commit that was approved before."""
    forged = {names.COMMIT: "f" * 40, keys.SINCE: "f" * 40}
    known = target("2", RolloutRecord(passed={"canary": 1.0}), annotations=forged)
    cluster = live(live_object("1", known.name), own("1"), known)
    (found,) = waiting_stages.waiting(bundle(manifest("2"), **GATED), cluster, RECORDED)
    assert (found.commit, found.since) == ("c2", "c1")
