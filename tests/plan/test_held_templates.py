"""Commits on hold: the template that one of them gave is not applied."""

from __future__ import annotations

import pytest

from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.objects import CommitId
from gitops_ds.core.rollouts.template_cause import TemplateCause
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.sources.bundle import Manifest, ManifestOrigin
from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import refusals
from gitops_ds.ownership import refused_writes
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.ownership.options import ApplyOptions, PlanContext
from tests.staging.staged_objects import KEY, bundle, live_object, manifest

BAD, GOOD, BESIDE = "b" * 40, "a" * 40, "c" * 40
CAUSE = TemplateCause("new", BAD, commits=(GOOD,))


def held(
    cause: TemplateCause | None = CAUSE,
    known: TemplateCause | None = None,
    reason: str = "",
    commit: str = BAD,
    one: Manifest | None = None,
) -> Skipped | None:
    """With `cause` of the template in Git, and the one `known` from the pass before."""
    causes = {} if cause is None else {KEY: cause}
    state = DeployerState(causes={} if known is None else {KEY: known})
    options = ApplyOptions(held=(commit[:12],), hold_reasons={commit[:12]: reason})
    return refused_writes.on_hold(
        one or manifest("1"), PlanContext(Stamp("test", causes=causes), options, state)
    )


@pytest.mark.parametrize("commit", [BAD, GOOD])
def test_each_commit_that_gave_the_template_holds_it(commit: str) -> None:
    skipped = held(commit=commit)
    assert skipped is not None
    assert (skipped.reason, skipped.key) == (SkipReason.HELD, KEY)
    assert f"release {commit[:12]}`" in skipped.message


def test_another_commit_and_a_template_without_a_record_hold_nothing() -> None:
    assert held(commit=BESIDE) is None
    assert held(None) is None


@pytest.mark.parametrize(
    ("known", "is_held"),
    [
        (None, True),
        (CAUSE, False),
        (replace(CAUSE, is_applied=False), True),
        (replace(CAUSE, source="old"), True),
    ],
)
def test_a_template_that_was_applied_before_the_hold_stays(
    known: TemplateCause | None, is_held: bool
) -> None:
    assert (held(known=known) is not None) == is_held


def test_the_reason_of_the_hold_is_stated_if_there_is_one() -> None:
    with_reason, without = held(reason="it leaks"), held()
    assert with_reason is not None
    assert without is not None
    assert with_reason.message == f"{without.message}; its reason: it leaks"


@pytest.mark.parametrize(
    ("is_live", "is_staged", "is_held"),
    [
        (False, False, True),
        (True, False, True),
        (False, True, True),
        (True, True, False),  # its rollout holds the new template, the rest of it is applied
    ],
)
def test_a_held_template_is_not_written_unless_a_rollout_holds_it(
    is_live: bool, is_staged: bool, is_held: bool
) -> None:
    one = manifest("2")
    some = bundle(one) if is_staged else replace(bundle(one), rollouts={})
    old = live_object("1") if is_live else None
    context = PlanContext(
        Stamp("test", causes={KEY: CAUSE}), ApplyOptions(held=(BAD[:12],)), DeployerState()
    )
    skipped = refusals.refusal(one, some, old, context)
    assert (skipped and skipped.reason) == (SkipReason.HELD if is_held else None)


def test_an_object_whose_kind_cannot_be_listed_is_refused_with_the_answer_of_the_api_server() -> (
    None
):
    skipped = refusals.unlisted(KEY, "daemonsets is forbidden")
    assert (skipped.reason, skipped.key) == (SkipReason.REFUSED, KEY)
    assert skipped.message == f"{KEY} can't be read: daemonsets is forbidden"


def test_a_manifest_of_another_source_is_not_held_by_a_commit() -> None:
    holder = ManifestOrigin(CommitId(""), "u", "ConfigMap source")
    assert held(one=replace(manifest("1"), holder=holder)) is None
