"""What keeps an object that left Git: a template of a DaemonSet whose rollout is not over."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.live import Live
from gitops_ds.core.objects import Key
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import planner, rollout_uses
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.ownership.options import ApplyOptions, Guards, Limit, PlanContext
from gitops_ds.rollouts.state import keys
from tests.staging.staged_objects import KEY, bundle, live, live_object, manifest, target

CONFIG = Key("", "ConfigMap", "infra", "settings")
SECRET = Key("", "Secret", "infra", "settings")
ELSEWHERE = replace(KEY, name="other")
REFUSED = Skipped(SkipReason.REFUSED, "no", KEY)


def using(body: dict[str, Any], name: str = CONFIG.name) -> dict[str, Any]:
    """The DaemonSet, with a template that mounts the ConfigMap."""
    body = copy.deepcopy(body)
    volume = {"name": "settings", "configMap": {"name": name}}
    body["spec"]["template"]["spec"]["volumes"] = [volume]
    return body


def kept(
    old: dict[str, Any] | None,
    *,
    one: Manifest | None = None,
    refused: tuple[Key, ...] = (),
    deferred: tuple[Key, ...] = (),
    used_by_pods: bool = False,
) -> dict[Key | None, SkipReason]:
    """What is kept of a ConfigMap and a Secret that left Git, and why."""
    one = one or manifest("2")
    skips = tuple(replace(REFUSED, key=key) for key in refused)
    git = replace(bundle(one), refusals=skips)
    options = ApplyOptions(deferred=dict.fromkeys(deferred, REFUSED))
    cluster = Live({} if old is None else {KEY: old})
    if used_by_pods:
        cluster = replace(cluster, used_by_pods={KEY: frozenset({CONFIG})})
    context = PlanContext(Stamp("test"), options)
    found = rollout_uses.refusals((CONFIG, SECRET), git, cluster, context)
    return {skip.key: skip.reason for skip in found}


USED = {CONFIG: SkipReason.USED_BY_ROLLOUT}


@pytest.mark.parametrize(
    ("refused", "deferred", "expected"),
    [
        ((), (), {}),
        ((KEY,), (), USED),
        ((), (KEY,), USED),
        ((KEY,), (KEY,), USED),
        ((ELSEWHERE,), (), {}),
        ((), (ELSEWHERE,), {}),
    ],
)
def test_it_is_kept_while_the_template_of_git_is_not_applied(
    refused: tuple[Key, ...], deferred: tuple[Key, ...], expected: dict[Key, SkipReason]
) -> None:
    assert kept(using(live_object("1")), refused=refused, deferred=deferred) == expected


def test_it_is_kept_while_a_rollout_begins_is_in_progress_and_ends() -> None:
    begins = manifest("2", annotations={keys.TARGET: "agent-2"})
    assert kept(using(live_object("1")), one=begins) == USED
    assert kept(using(live_object("1", "agent-2")), one=begins) == USED
    assert kept(using(live_object("1", "agent-2"))) == USED
    assert kept(using(live_object("1"))) == {}


def test_a_daemonset_that_is_not_in_the_cluster_keeps_nothing() -> None:
    assert kept(None, refused=(KEY,)) == {}


def test_what_its_pods_use_is_kept_after_the_rollout() -> None:
    assert kept(using(live_object("1")), used_by_pods=True) == {CONFIG: SkipReason.USED_BY_PODS}


def test_a_namespace_is_kept_while_an_object_inside_it_is_used_and_no_other() -> None:
    spaces = [Key("", "Namespace", "", name) for name in ("infra", "other")]
    body = {"metadata": {"name": "x"}}
    cluster = Live(
        {**dict.fromkeys((*spaces, CONFIG), body)}, used_by_pods={KEY: frozenset({CONFIG})}
    )
    found = rollout_uses.refusals(
        (*spaces, CONFIG), bundle(manifest("1")), cluster, PlanContext(Stamp("test"))
    )
    assert {skip.key for skip in found} == {spaces[0], CONFIG}


@pytest.mark.parametrize("is_named", [True, False])
def test_what_the_target_revision_uses_is_kept_while_it_is_the_target(is_named: bool) -> None:
    two = target("2")
    two = replace(two, template=using(live_object("2"))["spec"]["template"])
    old = live_object("1", two.name if is_named else "agent-3")
    cluster = replace(live(old, two), revisions={})
    context = PlanContext(Stamp("test"), ApplyOptions())
    found = rollout_uses.refusals((CONFIG, SECRET), bundle(manifest("3")), cluster, context)
    assert {skip.key: skip.reason for skip in found} == (USED if is_named else {})


@pytest.mark.parametrize(
    ("prunes", "is_ending", "reasons"),
    [
        (True, False, [SkipReason.USED_BY_ROLLOUT]),
        (False, False, [SkipReason.PRUNE_OFF]),  # a guard keeps it in any case
        (True, True, []),
    ],
)
def test_an_object_that_stays_or_ends_anyway_is_not_reported_as_used(
    prunes: bool, is_ending: bool, reasons: list[SkipReason]
) -> None:
    metadata: dict[str, Any] = {
        "name": CONFIG.name,
        "namespace": CONFIG.namespace,
        "labels": {names.OWNER_LABEL: "test"},
    }
    if is_ending:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    git = bundle(manifest("2", annotations={keys.TARGET: "agent-2"}))
    cluster = Live({KEY: using(live_object("1", "agent-2")), CONFIG: config})
    options = ApplyOptions(Guards(prune=prunes, deletes=Limit()))
    context = PlanContext(Stamp("test"), options, inventory=frozenset({CONFIG}))
    found = planner._deletes(git, cluster, context, {})
    assert [one.reason for one in found.refusals] == reasons
