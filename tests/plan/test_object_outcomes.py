"""What becomes of one object of Git, and what an apply is predicted to do."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.change import Drifted, Operation
from gitops_ds.core.deployer_state import DeployerState, KnownDrift
from gitops_ds.core.live import Live, Node
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.skip_reasons import DriftPolicy, SkipReason
from gitops_ds.core.sources.bundle import ManifestOrigin
from gitops_ds.core.startup_taints import OWN
from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import object_changes, refusals, rollout_impact
from gitops_ds.deploy.plan.object_changes import ObjectPlanner
from gitops_ds.kube.apimachinery import defaults
from gitops_ds.ownership import refused_writes
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.ownership.options import (
    ApplyOptions,
    DryRunResult,
    FieldConflict,
    OtherOwners,
    PlanContext,
)
from tests.staging.staged_objects import KEY, bundle, live_object, manifest, own, template


def stored(tag: str, **more: Any) -> dict[str, Any]:
    """The DaemonSet with the defaults of the API server."""
    return dict(defaults.defaulted(live_object(tag, **more)))


CONTEXT = PlanContext(Stamp("test"), ApplyOptions(adopt=True))


@pytest.mark.parametrize(
    ("key", "reason", "command"),
    [
        (
            KEY,
            "spec.selector: Invalid value: {}: field is immutable",
            "kubectl -n infra delete ds agent --cascade=orphan",
        ),
        (
            Key("", "ConfigMap", "infra", "agent"),
            "data: Forbidden: field is immutable when `immutable` is set",
            "kubectl -n infra delete configmap agent;",
        ),
        (
            Key("rbac.authorization.k8s.io", "ClusterRoleBinding", "", "agent"),
            "roleRef: Invalid value: {}: cannot change roleRef",
            "kubectl delete clusterrolebinding agent;",
        ),
        (KEY, "spec.template.spec.containers: Required value", ""),
    ],
)
def test_the_refusal_of_an_immutable_field_has_the_way_out(
    key: Key, reason: str, command: str
) -> None:
    message = refused_writes.rejected(key, reason).message
    assert reason in message
    assert command in message
    assert ("kubectl" in message) == bool(command)


@pytest.mark.parametrize(
    ("answer", "in_sync", "operation", "reason"),
    [
        (None, True, Operation.KEEP, None),
        (None, False, Operation.UPDATE, None),
        (DryRunResult(stored("1")), False, Operation.KEEP, None),  # it would write nothing
        (DryRunResult(stored("2")), False, Operation.UPDATE, None),
        (DryRunResult(stored("1", fields={})), False, Operation.UPDATE, None),  # an owner
        (DryRunResult(refused="no"), False, None, SkipReason.REFUSED),
        (DryRunResult(conflicts=(FieldConflict("x", "y"),)), False, None, SkipReason.CONFLICT),
    ],
)
def test_an_object_that_exists(
    answer: DryRunResult | None,
    in_sync: bool,
    operation: Operation | None,
    reason: SkipReason | None,
) -> None:
    one = manifest("1")
    planner = ObjectPlanner(bundle(one), Live({KEY: stored("1")}), CONTEXT)
    outcome = planner.outcome(one, answer, in_sync=in_sync)
    assert (outcome.change.operation if outcome.change else None) is operation
    assert (outcome.refusal.reason if outcome.refusal else None) is reason


def test_an_object_of_an_owner_with_precedence_and_a_held_one_are_refused() -> None:
    one = manifest("1")
    options = replace(CONTEXT.options, other_owners=OtherOwners(ahead={KEY: "first"}))
    skipped = refusals.refusal(one, bundle(one), None, replace(CONTEXT, options=options))
    assert skipped is not None
    assert skipped.reason is SkipReason.NAMED_IN_GIT
    held = replace(bundle(one), held={"agent": "agents/agent/agent.yaml"})
    skipped = refusals.refusal(one, held, None, CONTEXT)
    assert skipped is not None
    assert skipped.reason is SkipReason.HELD
    assert skipped.message.endswith("hold: true in agents/agent/agent.yaml")
    assert refusals.refusal(replace(one, agent="other"), held, None, CONTEXT) is None
    assert refusals.refusal(one, bundle(one), None, CONTEXT) is None


@pytest.mark.parametrize(
    ("known", "choice", "words"),
    [
        (None, DriftPolicy.HOLD, ", for 24.0 hours more"),
        (KnownDrift(DriftPolicy.HOLD, 6400.0, ""), DriftPolicy.HOLD, ", for 23.0 hours more"),
        (KnownDrift(DriftPolicy.REPORT, 6400.0, ""), DriftPolicy.HOLD, ", for 24.0 hours more"),
        (None, DriftPolicy.REPORT, ""),
    ],
)
def test_uncorrected_drift_names_the_time_left(
    known: KnownDrift | None, choice: DriftPolicy, words: str
) -> None:
    state = DeployerState(drift={KEY: known} if known else {})
    skipped = refusals.uncorrected(
        KEY, Drifted((), (), "a delete", choice), replace(CONTEXT, state=state, now=10_000.0)
    )
    assert skipped.message == (
        f"{KEY} was deleted in the cluster; it is not corrected{words}: drift is set to {choice}"
    )


def test_an_apply_keeps_the_fields_of_others_and_removes_ours() -> None:
    live: dict[str, Any] = live_object("1")
    live["metadata"]["labels"] = {"other": "x"}
    live["spec"]["template"]["spec"]["dnsPolicy"] = "None"
    wanted = copy.deepcopy(dict(manifest("2").body))
    wanted["metadata"]["labels"] = {"team": "a"}
    found = object_changes.predicted(live, wanted)
    assert found["metadata"]["labels"] == {"other": "x", "team": "a"}
    assert found["metadata"]["uid"] == "u1"
    assert found["spec"]["template"]["spec"]["dnsPolicy"] == "None"
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "agent:2"
    del wanted["spec"]["template"]["metadata"]
    assert "labels" not in object_changes.predicted(live, wanted)["spec"]["template"].get(
        "metadata", {}
    )


def test_a_change_names_its_revision() -> None:
    def numbers(old: str | None, new: str) -> tuple[int | None, int | None, int]:
        before = None if old is None else live_object(old)
        known = [own("1", 1), own("2", 3)]
        found = rollout_impact.rollout(before, live_object(new), known)
        assert (found.old is None) is (old is None)
        return found.current, found.known_as, found.becomes

    assert numbers(None, "1") == (None, 1, 4)
    assert numbers(None, "2") == (None, 3, 3)
    assert numbers("2", "2") == (3, 3, 3)
    assert numbers("2", "1") == (3, 1, 4)
    assert numbers("1", "2") == (1, 3, 3)
    assert numbers("1", "9") == (1, None, 4)


def test_a_template_with_newer_defaults_is_the_same() -> None:
    defaulted = template("1")
    defaulted["spec"]["dnsPolicy"] = "ClusterFirst"
    assert rollout_impact.same_template(template("1"), defaulted)
    assert rollout_impact.same_template(template("1"), template("1"))
    assert not rollout_impact.same_template(template("1"), template("2"))


@pytest.mark.parametrize(
    ("strategy", "rolls", "restarted"),
    [
        ({}, True, ("a",)),
        ({}, False, ()),
        ({"type": "RollingUpdate"}, True, ("a",)),
        ({"type": "OnDelete"}, True, ()),
    ],
)
def test_only_a_rolling_update_restarts_pods(
    strategy: dict[str, str], rolls: bool, restarted: tuple[str, ...]
) -> None:
    new = live_object("2")
    new["spec"]["updateStrategy"] = strategy
    found = rollout_impact.impact(live_object("1"), new, [Node("a")], rolls=rolls)
    assert (found.gained, found.lost, found.restarted) == ((), (), restarted)
    assert rollout_impact.impact(None, new, [Node("a")], rolls=rolls).gained == ("a",)


def test_an_agent_that_becomes_required_names_the_nodes_that_wait_for_it() -> None:
    one = manifest("1")
    one.body["metadata"].setdefault("annotations", {})[names.REQUIRED_FOR_WORK] = "true"
    live = Live({}, nodes=(Node("a", taints=(OWN,)),))
    change = ObjectPlanner(bundle(one), live, CONTEXT).outcome(one, None, in_sync=False).change
    assert change is not None
    assert change.nodes.waiting == ("a",)


@pytest.mark.parametrize(
    ("group", "kind"),
    [("", "ConfigMap"), ("apps", "Deployment"), ("apps.kruise.io", "DaemonSet")],
)
def test_another_kind_has_no_revision(group: str, kind: str) -> None:
    key = Key(group, kind, "infra", "agent")
    one = manifest("1", key)
    for objects in ({}, {key: {**live_object("2"), "kind": kind}}):
        planner = ObjectPlanner(bundle(one), Live(objects), CONTEXT)
        change = planner.outcome(one, None, in_sync=False).change
        assert change is not None
        assert change.rollout is None


def test_an_object_of_another_source_with_an_error_is_not_taken_over() -> None:
    name = "configmap/infra/source"
    held = replace(manifest("1"), holder=ManifestOrigin(CommitId(""), "u", "ConfigMap other"))
    there = stored("1", annotations={names.PATH: f"{name}/a.yaml"})
    git = replace(bundle(held), kept=frozenset({name}))
    skipped = refusals.refusal(held, git, there, CONTEXT)
    assert skipped is not None
    assert skipped.reason is SkipReason.QUARANTINED
    assert refusals.refusal(held, replace(git, kept=frozenset()), there, CONTEXT) is None
