"""What is proven in each state of the cluster and of the stored state, also of a cluster that an
earlier version paced; and the template that is applied during a rollout.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from gitops_ds.apimachinery import revisions
from gitops_ds.apimachinery.rollouts import proofs
from gitops_ds.model import names
from gitops_ds.model.live import Live
from gitops_ds.model.rollouts.proven_templates import (
    HaltedTemplate,
    ProofKind,
    TemplateHistory,
    TemplateProof,
)
from gitops_ds.model.rollouts.staged_rollout import Halt, RolloutRecord
from gitops_ds.model.values import replace
from gitops_ds.plan.rollouts import template_history
from tests.plan.staged_objects import KEY, OWNED, live, live_object, own, target, template

HALTED = RolloutRecord(halt=Halt(5.0, "canary", "CrashLoopBackOff on n1"))
EARLY = RolloutRecord(early=True)
NOTED = {names.PROVEN_REVISION: own("1").name}
NOTHING = TemplateHistory()


def identity(tag: str) -> str:
    return proofs.identity(template(tag))


def proof(tag: str, since: float = 1.0) -> TemplateProof:
    return TemplateProof(identity(tag), "c" * 40, since, ProofKind.ROLLOUT, since=since)


def stated(tag: str, proven: TemplateProof) -> dict[str, Any]:
    """A DaemonSet that has a template, and the proof of the one in force."""
    annotations: Mapping[str, str] = {names.PROVEN: proofs.encoded(proven)}
    body = live_object(tag, annotations=annotations)
    owned = {"f:annotations": {f"f:{names.PROVEN}": {}}}
    body["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"] = owned
    return body


@pytest.mark.parametrize(
    ("cluster", "proven", "halted"),
    [
        # at rest: the template of the DaemonSet
        (live(live_object("1"), own("1")), "1", False),
        (live(live_object("2"), own("1"), own("2", 2)), "2", False),
        # in a rollout and in a halt: the DaemonSet keeps the proven one
        (live(live_object("1", target("2").name), own("1"), target("2")), "1", False),
        (live(live_object("1", target("2").name), own("1"), target("2", HALTED)), "1", True),
        # early: the DaemonSet has the target's template, which names the proven revision
        (
            live(
                live_object("2", target("2").name),
                own("1"),
                target("2", EARLY, promoted=True, annotations=NOTED),
            ),
            "1",
            False,
        ),
        # early, and replaced by another target
        (
            live(
                live_object("1", target("3").name),
                own("1"),
                target("2", promoted=True, annotations=NOTED),
                target("3", annotations=NOTED),
            ),
            "1",
            False,
        ),
        # complete, and the template is not written yet
        (live(live_object("1", "agent-2"), own("1"), own("2", 2)), "1", False),
        # halted and reverted: the target is deleted later
        (live(live_object("1"), own("1"), target("2", HALTED)), "1", True),
    ],
)
def test_a_cluster_of_an_earlier_version_is_adopted(
    cluster: Live, proven: str, halted: bool
) -> None:
    read = template_history.read(KEY, cluster, NOTHING, "", 9.0)
    assert read.proof is not None
    assert (read.proof.template, read.proof.how) == (identity(proven), ProofKind.ADOPTED)
    assert read.proof.hash == own(proven).hash
    assert proofs.identity(read.template) == identity(proven)
    assert bool(read.halted) == halted
    again = template_history.read(KEY, cluster, read, "", 10.0)
    assert again == read, "it is adopted once"


@pytest.mark.parametrize(("generation", "how"), [(1, ProofKind.FIRST), (2, ProofKind.ADOPTED)])
def test_a_daemonset_that_was_never_changed_has_its_first_template(
    generation: int, how: ProofKind
) -> None:
    body = live_object("1")
    body["metadata"]["generation"] = generation
    proven = template_history.read(KEY, live(body, own("1")), NOTHING, "", 9.0).proof
    assert proven is not None
    assert proven.how is how


def test_an_adopted_template_has_the_commit_of_its_daemonset() -> None:
    cluster = live(live_object("1", annotations={names.COMMIT: "c7"}), own("1"))
    read = template_history.read(KEY, cluster, NOTHING, "", 9.0)
    assert read.proof is not None
    assert read.proof.commit == "c7"


def test_the_stored_proof_outlives_the_daemonset_its_revisions_and_an_edit() -> None:
    stored = TemplateHistory(proof("1"), template("1"), uid="u0")
    for cluster in (live(None), live(stated("2", proof("1"))), live(live_object("2"), own("2"))):
        read = template_history.read(KEY, cluster, stored, "", 9.0)
        assert (read.proof, read.template) == (stored.proof, stored.template)


def test_only_a_daemonset_that_we_created_has_a_first_template_that_a_webhook_changed() -> None:
    first = replace(proof("1"), how=ProofKind.FIRST)
    stored = TemplateHistory(first, template("1"))
    created = live_object("2")
    created["metadata"]["generation"] = 1
    mutated = template_history.read(KEY, live(created, own("2")), stored, "", 9.0).proof
    assert mutated is not None
    assert mutated.template == identity("2")
    rolled = TemplateHistory(proof("1"), template("1"))
    assert template_history.read(KEY, live(created, own("2")), rolled, "", 9.0).proof == proof("1")
    created["metadata"]["managedFields"][0] |= {"manager": "kubectl", "operation": "Update"}
    assert template_history.read(KEY, live(created, own("2")), stored, "", 9.0).proof == first


def test_a_newer_proof_on_the_daemonset_replaces_the_stored_one() -> None:
    stored = TemplateHistory(proof("1"), template("1"), (proof("2", 0.2),))
    read = template_history.read(KEY, live(stated("2", proof("2", 5.0))), stored, "", 9.0)
    assert read.proof is not None
    assert read.proof.template == identity("2")
    assert [one.template for one in read.earlier] == [identity("1")]
    older = template_history.read(KEY, live(stated("2", proof("2", 1.0))), stored, "", 9.0)
    assert older.proof == stored.proof
    unknown = template_history.read(KEY, live(stated("3", proof("3", 5.0))), stored, "", 9.0)
    assert unknown == replace(stored, uid="u1")
    edited = stated("2", proof("2", 5.0))
    edited["metadata"]["managedFields"][0]["manager"] = "kubectl-edit"
    assert template_history.read(KEY, live(edited), stored, "", 9.0).proof == stored.proof


def test_a_proof_that_was_copied_to_a_revision_of_another_template_proves_nothing() -> None:
    edited = own("2", 2)
    edited.raw["metadata"].setdefault("annotations", {})[names.PROOF] = proofs.encoded(proof("1"))
    assert proofs.proof_in(edited) is None
    read = template_history.read(KEY, live(stated("1", proof("1")), edited), NOTHING, "", 9.0)
    assert read.earlier == ()


def test_without_a_state_proofs_of_other_revisions_are_earlier_ones() -> None:
    revisions = [own("1"), own("2", 2)]
    for tag, one in zip("12", revisions, strict=True):
        one.raw["metadata"].setdefault("annotations", {})[names.PROOF] = proofs.encoded(proof(tag))
    read = template_history.read(KEY, live(stated("1", proof("1")), *revisions), NOTHING, "", 9.0)
    assert [(one.template, one.until) for one in read.earlier] == [(identity("2"), 1.0)]


def test_a_completed_rollout_is_in_force_and_released() -> None:
    halted = tuple(HaltedTemplate(tag, "c", 1.0, template=identity(tag)) for tag in "23")
    before = TemplateHistory(proof("1"), template("1"), halted=halted)
    assert template_history.completed(before, target("2")) == before
    after = template_history.completed(before, target("2", proven=True))
    assert after.proof is not None
    assert (after.proof.template, after.template) == (identity("2"), template("2"))
    assert (after.proof.until, after.halted) == (0.0, halted[1:])
    assert [one.template for one in after.earlier] == [identity("1")]


def test_an_earlier_target_that_a_person_named_again_is_not_completed_again() -> None:
    earlier = own("1")
    earlier.raw["metadata"].setdefault("annotations", {})[names.PROOF] = proofs.encoded(proof("1"))
    history = TemplateHistory(proof("2", 5.0), template("2"))
    assert template_history.completed(history, earlier) == history


@pytest.mark.parametrize(
    ("hash", "source", "ended", "expected"),
    [
        ("", "s", "", "c9"),
        ("other", "s", "", ""),  # the halted template of another rollout
        ("", "new", "", ""),  # Git still has it
        ("", "", "", ""),
        ("", "s", "c8", "c8"),
    ],
)
def test_a_halted_template_ends_with_the_commit_that_replaces_it(
    hash: str, source: str, ended: str, expected: str
) -> None:
    current = target("2")
    hash = hash or revisions.labels_of(current)[names.ROLLOUT]
    history = TemplateHistory(halted=(HaltedTemplate(hash, "c", 1.0, source=source, ended=ended),))
    assert template_history.ended(history, None, "new", "c9") == history
    (found,) = template_history.ended(history, current, "new", "c9").halted
    assert found.ended == expected


def test_a_restart_is_not_another_template() -> None:
    restarted = template("1")
    metadata = restarted.setdefault("metadata", {})
    metadata["annotations"] = {"kubectl.kubernetes.io/restartedAt": "2026-11-28T00:00:00Z"}
    assert proofs.identity(restarted) == identity("1")
    metadata["annotations"]["other"] = "x"
    assert proofs.identity(restarted) != identity("1")


AGENT = 'k:{"name":"agent"}'
PORT = 'k:{"containerPort":80,"protocol":"TCP"}'
FIELDS: dict[str, Any] = {
    "f:spec": {
        "f:containers": {
            AGENT: {
                ".": {},
                "f:name": {},
                "f:image": {},
                "f:args": {},
                "f:ports": {PORT: {".": {}, "f:containerPort": {}}},
                "f:resources": {"f:limits": {"f:cpu": {}}},
            },
        },
        "f:finalizers": {'v:"a"': {}},
    },
}


def proven() -> dict[str, Any]:
    """A complete template: ours, with defaults and fields of others."""
    return {
        "metadata": {"labels": {"app": "agent"}, "annotations": {"other": "x"}},
        "spec": {
            "containers": [
                {
                    "name": "agent",
                    "image": "agent:1",
                    "args": ["--a", "--b"],
                    "imagePullPolicy": "IfNotPresent",
                    "ports": [
                        {"containerPort": 80, "protocol": "TCP"},
                        {"containerPort": 81, "protocol": "TCP"},
                    ],
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                },
                {"name": "sidecar", "image": "sidecar:1", "env": [{"name": "A", "value": "1"}]},
            ],
            "finalizers": ["a", "b"],
            "dnsPolicy": "ClusterFirst",
        },
    }


def kept(wanted: dict[str, Any], fields: dict[str, Any] = FIELDS) -> Any:
    """The template that is applied, where an edit in the cluster changed the live one."""
    old = live_object("edited", fields=fields)
    return template_history.kept_template(old, wanted, proven())


OURS: dict[str, Any] = {
    "spec": {
        "containers": [
            {
                "name": "agent",
                "image": "agent:1",
                "args": ["--a", "--b"],
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1"}},
            }
        ],
        "finalizers": ["a"],
    }
}


def test_the_values_are_those_of_the_proven_revision_and_the_fields_ours() -> None:
    assert kept({}) == OURS


@pytest.mark.parametrize(
    ("wanted", "path", "value"),
    [
        ({"metadata": {"labels": {"app": "x"}}}, ("metadata",), {"labels": {"app": "agent"}}),
        ({"metadata": {"labels": {"new": "x"}}}, ("metadata",), {"labels": {}}),
        ({"spec": {"dnsPolicy": "Default"}}, ("spec", "dnsPolicy"), "ClusterFirst"),
        ({"spec": {"finalizers": ["b", "c"]}}, ("spec", "finalizers"), ["a", "b"]),
        (
            {"spec": {"containers": [{"name": "agent", "imagePullPolicy": "Always"}]}},
            ("spec", "containers"),
            [{**OURS["spec"]["containers"][0], "imagePullPolicy": "IfNotPresent"}],
        ),
        (
            {"spec": {"containers": [{"name": "agent", "ports": [{"containerPort": 81}]}]}},
            ("spec", "containers", 0, "ports"),
            [{"containerPort": 80}, {"containerPort": 81}],
        ),
        (
            {"spec": {"containers": [{"name": "sidecar", "env": [{"name": "A"}]}]}},
            ("spec", "containers", 1),
            {"name": "sidecar", "env": [{"name": "A", "value": "1"}]},
        ),
        ({"spec": {"containers": [{"name": "other"}]}}, ("spec",), OURS["spec"]),
        ({"spec": {"containers": "text"}}, ("spec",), OURS["spec"]),
        ({"spec": "text"}, ("spec",), OURS["spec"]),
    ],
)
def test_a_field_of_the_manifest_is_kept_too(
    wanted: dict[str, Any], path: tuple[Any, ...], value: Any
) -> None:
    found = kept(wanted)
    for step in path:
        found = found[step]
    assert found == value


def test_a_field_that_is_owned_as_a_whole_is_kept_as_a_whole() -> None:
    whole = {"f:spec": {"f:containers": {AGENT: {".": {}, "f:resources": {}}}}}
    resources = proven()["spec"]["containers"][0]["resources"]
    assert kept({}, whole) == {"spec": {"containers": [{"resources": resources}]}}
    assert kept({}, {"f:spec": {}}) == {"spec": proven()["spec"]}


def test_without_our_fields_those_of_the_manifest_count() -> None:
    assert kept({"spec": {"dnsPolicy": "Default"}}, {}) == {"spec": {"dnsPolicy": "ClusterFirst"}}


def test_a_live_template_that_is_proven_stays_for_any_manifest() -> None:
    old = live_object("1", fields=OWNED)
    old["spec"]["template"]["spec"]["dnsPolicy"] = "Default"
    complete = copy.deepcopy(old["spec"]["template"])
    assert template_history.kept_template(old, template("2"), complete) == template("1")
