"""The halted rollouts of an applied commit, and the templates in force."""

from __future__ import annotations

import pytest

from gitops_ds.core import names
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CommitId, Digest
from gitops_ds.core.rollouts.halted_rollout import HaltedRollout
from gitops_ds.core.rollouts.proven_templates import (
    RecordedTemplate,
    TemplateHistory,
    TemplateProof,
)
from gitops_ds.core.rollouts.rollout_policy import Revert
from gitops_ds.core.rollouts.staged_rollout import (
    Halt,
    RolloutRecord,
)
from gitops_ds.core.sources.bundle import ManifestOrigin
from gitops_ds.core.values import replace
from gitops_ds.rollouts.causes import template_digests, template_files
from gitops_ds.rollouts.reverts import halted_rollouts
from gitops_ds.rollouts.state import keys, proofs
from tests.staging.staged_objects import KEY, bundle, live, live_object, manifest, target, template

HALT = Halt(1000.0, "canary", "CrashLoopBackOff on n1")
HALTED = RolloutRecord(halt=HALT)
IDENTITY = proofs.identity(template("2"))
SOURCE = template_digests.digest(manifest("2"))
RECORDED = {KEY: TemplateHistory(target=RecordedTemplate(IDENTITY, SOURCE, "c2", "c1"))}
HOLDER = ManifestOrigin(CommitId("c"), "u", "an object of the cluster")
FILES = frozenset({"agents/agent", "agents/agent/daemonset.yaml"})
OTHER = replace(KEY, name="other")


def test_a_halted_rollout_of_the_template_in_git_is_found() -> None:
    halted = target("2", HALTED, annotations={names.COMMIT: "f2", keys.SINCE: "f1"})
    one = bundle(manifest("2"), onFailure={"revert": {"how": "pull-request"}})
    assert list(halted_rollouts.halted(one, live(live_object("1"), halted), RECORDED)) == [
        HaltedRollout(
            daemonset=KEY,
            uid="u1",
            commit=CommitId("c2"),
            since="c1",
            template=Digest(template_digests.digest(manifest("2"))),
            files=template_files.deciding(manifest("2"), one),
            halt=HALT,
            revert=Revert(how="pull-request"),
            cluster="main",
            own=FILES,
        )
    ]
    (found,) = halted_rollouts.halted(one, live(None, halted), RECORDED)
    assert found.uid == ""


def test_a_halt_of_a_template_that_the_deployer_did_not_record_does_not_count() -> None:
    one, cluster = bundle(manifest("2")), live(live_object("1"), target("2", HALTED))
    assert len(list(halted_rollouts.halted(one, cluster, RECORDED))) == 1
    assert list(halted_rollouts.halted(one, cluster, {})) == []
    forged = target("3", HALTED, annotations={keys.TEMPLATE_DIGEST: SOURCE})
    assert list(halted_rollouts.halted(one, live(live_object("1"), forged), RECORDED)) == []


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
    assert list(halted_rollouts.halted(one, live(live_object("1"), known), RECORDED)) == []


def test_a_template_in_force_is_the_proven_one_or_without_a_policy_the_applied_one() -> None:
    proof = TemplateProof("p", source="proven")
    applied = RecordedTemplate("a", "applied")
    before = {KEY: TemplateHistory(proof), OTHER: TemplateHistory(applied=applied)}
    assert halted_rollouts.proven(before, {}) == {KEY: "proven", OTHER: "applied"}
    both = {KEY: TemplateHistory(replace(proof, source="newer"), applied=applied)}
    assert halted_rollouts.proven(before, both) == {KEY: "newer", OTHER: "applied"}
    unknown = {KEY: TemplateHistory(replace(proof, source="")), OTHER: TemplateHistory()}
    assert halted_rollouts.proven(before, unknown) == {}
