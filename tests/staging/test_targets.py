"""The kind of a target, a row for each relation between the template in Git and what is proven, and
the rollout that ends before.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.duration import Duration
from gitops_ds.core.live import Revision
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.proven_templates import (
    HaltedTemplate,
    ProofKind,
    StopKind,
    TemplateHistory,
    TemplateProof,
)
from gitops_ds.core.rollouts.rollout_policy import Rollback
from gitops_ds.core.rollouts.staged_rollout import Halt, RolloutRecord
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.rollouts.staging import targets
from gitops_ds.rollouts.staging.targets import Target, TargetKind, TargetView, WantedTemplate
from gitops_ds.rollouts.state import halted_templates, keys, proofs
from tests.staging.staged_objects import live_object, manifest, own, template
from tests.staging.staged_objects import target as target_revision

DAY = 86_400.0
NOW = 100 * DAY


def proof(tag: str, until: float = 0.0) -> TemplateProof:
    name = f"id-{tag}"
    return TemplateProof(name, f"{tag}{'c' * 39}", NOW - 50 * DAY, source=f"git-{tag}", until=until)


HISTORY = TemplateHistory(
    proof("1"),
    template("1"),
    earlier=(proof("2", NOW - DAY), proof("3", NOW - 8 * DAY)),
    halted=(HaltedTemplate("h4", "4" * 40, NOW - DAY, "no", "id-4", "git-4"),),
)
KEEP = Rollback(stages="keep")


@pytest.mark.parametrize(
    ("tag", "rollback", "kind"),
    [
        ("1", Rollback(), TargetKind.NONE),
        ("2", Rollback(), TargetKind.ROLLBACK),  # proven earlier, within rollback.within
        ("2", KEEP, TargetKind.FORWARD),
        ("3", Rollback(), TargetKind.FORWARD),  # proven earlier, too long ago
        ("3", Rollback(within=Duration(8 * DAY)), TargetKind.ROLLBACK),
        ("4", Rollback(), TargetKind.HELD),
        ("9", Rollback(), TargetKind.FORWARD),  # edited, undone, unstaged, or new
    ],
)
@pytest.mark.parametrize("known", ["source", "identity"])
def test_the_kind_follows_from_what_is_proven(
    tag: str, rollback: Rollback, kind: TargetKind, known: str
) -> None:
    wanted = WantedTemplate(f"git-{tag}" if known == "source" else "", f"id-{tag}")
    assert targets.target_of(wanted, HISTORY, rollback, NOW).kind is kind


def test_a_template_without_any_known_digest_is_not_proven() -> None:
    history = TemplateHistory(TemplateProof(""), earlier=(TemplateProof(""),))
    wanted = WantedTemplate("", "")
    assert targets.target_of(wanted, history, Rollback(), NOW).kind is TargetKind.FORWARD


@pytest.mark.parametrize(
    ("tag", "rollback", "view", "words"),
    [
        (
            "1",
            Rollback(),
            TargetView(template("1"), is_rolling=True),
            "returns the updated nodes to the proven template of 1ccccccccccc, at once",
        ),
        (
            "1",
            Rollback(),
            TargetView(template("9")),
            "corrects the template to the proven one of 1ccccccccccc, without restarts",
        ),
        (
            "2",
            Rollback(),
            TargetView(template("1")),
            (
                "rolls back to the template of 2ccccccccccc, in force when its rollout policy was "
                "first applied at 1970-02-20T00:00:00Z: in the order of the stages, without soak, "
                "gates and approvals"
            ),
        ),
        (
            "2",
            KEEP,
            TargetView(template("1")),
            "starts at the canary: this template was proven before, and rollback.stages is keep",
        ),
        (
            "3",
            Rollback(),
            TargetView(template("1")),
            "starts at the canary: this template was replaced more than 7d ago (rollback.within)",
        ),
        (
            "4",
            Rollback(),
            TargetView(template("1")),
            "is on hold: this template was halted before, with commit 444444444444",
        ),
        (
            "9",
            Rollback(),
            TargetView(template("1")),
            "starts at the canary: this template is not proven",
        ),
    ],
)
def test_the_plan_states_the_kind_and_why(
    tag: str, rollback: Rollback, view: TargetView, words: str
) -> None:
    wanted = WantedTemplate(f"git-{tag}", f"id-{tag}")
    target = targets.target_of(wanted, HISTORY, rollback, NOW)
    assert targets.words_of(target, wanted, HISTORY, rollback, view) == words


@pytest.mark.parametrize(("reason", "end"), [("too early", ": too early"), ("", "")])
def test_the_plan_of_a_template_on_hold_has_the_reason_that_a_person_stated(
    reason: str, end: str
) -> None:
    one = HISTORY.halted[0]
    hold = replace(one, message=halted_templates.ON_HOLD, kind=StopKind.HOLD, reason=reason)
    wanted = WantedTemplate("git-4", "id-4")
    history = replace(HISTORY, halted=(hold,))
    target = targets.target_of(wanted, history, Rollback(), NOW)
    words = targets.words_of(target, wanted, history, Rollback(), TargetView(template("1")))
    assert words == f"is on hold: this template was put on hold, with commit 444444444444{end}"


def test_a_template_that_exists_as_a_revision_only_was_never_proven() -> None:
    wanted = WantedTemplate("git-9", proofs.identity(template("9")))
    target = targets.target_of(wanted, HISTORY, Rollback(), NOW)
    view = TargetView(template("1"), (own("9"),))
    words = targets.words_of(target, wanted, HISTORY, Rollback(), view)
    assert words.endswith("this template was rolled out without stages, but never proven")
    unknown = TemplateHistory()
    assert targets.words_of(target, wanted, unknown, Rollback(), view) == ""
    at_rest = Target(TargetKind.NONE, TemplateProof(proofs.identity(template("1"))))
    assert targets.words_of(at_rest, wanted, unknown, Rollback(), view) == ""
    assert ProofKind.ADOPTED is HISTORY.earlier[0].how


FINISH = rollout_policy.decode({"supersede": "finish-first"})
TWO, THREE = target_revision("2"), target_revision("3")
HALTED = target_revision("2", RolloutRecord(halt=Halt(1000.0, "canary", "no")))
HASH = revisions.labels_of(TWO)[names.ROLLOUT]
HELD = {keys.HALTED: f'[{{"hash":"{HASH}","commit":"c","at":1.0}}]'}
SOURCE = template_digests.digest(manifest("2"))
HELD_BY_SOURCE = {keys.HALTED: f'[{{"hash":"x","commit":"c","at":1.0,"source":"{SOURCE}"}}]'}


@pytest.mark.parametrize(
    ("old", "in_git", "current", "first"),
    [
        (live_object("1"), THREE, TWO, True),
        (live_object("1"), None, TWO, True),
        (live_object("1"), TWO, TWO, False),  # Git has it
        (live_object("1"), THREE, None, False),
        (
            live_object("1"),
            THREE,
            target_revision("2", RolloutRecord(halt=Halt(1000.0, "canary", "no"))),
            False,
        ),
        (live_object("1", annotations=HELD), THREE, TWO, False),
        (live_object("1", annotations=HELD_BY_SOURCE), THREE, TWO, False),
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
