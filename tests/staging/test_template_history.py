"""What is proven in each state of the cluster and of the stored state, also of a cluster that an
earlier version paced; and the template that is applied during a rollout.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.live import Live, Revision
from gitops_ds.core.rollouts.proven_templates import (
    HaltedTemplate,
    ProofKind,
    RecordedTemplate,
    TemplateHistory,
    TemplateProof,
)
from gitops_ds.core.rollouts.staged_rollout import Halt, RolloutRecord
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.rollouts.staging import template_history
from gitops_ds.rollouts.staging.git_template import GitTemplate
from gitops_ds.rollouts.state import keys, proofs
from tests.staging.staged_objects import (
    KEY,
    OWNED,
    live,
    live_object,
    manifest,
    own,
    tag_of,
    target,
    template,
)

HALTED = RolloutRecord(halt=Halt(5.0, "canary", "CrashLoopBackOff on n1"))
EARLY = RolloutRecord(early=True)
NOTED = {keys.PROVEN_REVISION: own("1").name}
NOTHING = TemplateHistory()


def identity(tag: str) -> str:
    return proofs.identity(template(tag))


def proof(tag: str, since: float = 1.0) -> TemplateProof:
    return TemplateProof(identity(tag), "c" * 40, since, ProofKind.ROLLOUT, since=since)


def in_git(tag: str) -> GitTemplate:
    return GitTemplate(
        template_digests.digest(manifest(tag)), template(tag), frozenset({identity(tag)}), "c9"
    )


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
    read = template_history.read(KEY, cluster, NOTHING, in_git("9"), 9.0)
    assert read.proof is not None
    assert read.proof.commit == ""
    assert (read.proof.template, read.proof.how) == (identity(proven), ProofKind.ADOPTED)
    assert read.proof.hash == own(proven).hash
    assert proofs.identity(read.template) == identity(proven)
    assert bool(read.halted) == halted
    again = template_history.read(KEY, cluster, read, in_git("9"), 10.0)
    assert again == read, "it is adopted once"


def forged(tag: str, **metadata: Any) -> dict[str, Any]:
    """A DaemonSet with a template, which names us as the manager of its fields and states that it
    is new.
    """
    proven = TemplateProof(identity(tag), "f" * 40, 9e12, since=9e12)
    body = live_object(
        tag, annotations={keys.PROVEN: proofs.encoded(proven), names.COMMIT: "f" * 40}
    )
    owned = {"f:annotations": {f"f:{keys.PROVEN}": {}, f"f:{names.COMMIT}": {}}}
    body["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"] = owned
    body["metadata"] |= {"generation": 1, "uid": "u9", **metadata}
    return body


def with_proof(revision: Revision, proven: TemplateProof) -> Revision:
    revision.raw["metadata"].setdefault("annotations", {})[keys.PROOF] = proofs.encoded(proven)
    return revision


def applied(tag: str, commit: str = "c1") -> TemplateHistory:
    """A state in which the template was applied without a policy."""
    source = template_digests.digest(manifest(tag))
    record = RecordedTemplate(identity(tag), source, commit, body=template(tag))
    return TemplateHistory(applied=record, uid="u1")


STORED = TemplateHistory(proof("1"), template("1"), (proof("3", 0.2),), uid="u0")
FIRST = replace(proof("1"), how=ProofKind.FIRST, source=in_git("1").source)


@pytest.mark.parametrize(
    "cluster",
    [
        live(None),
        live(forged("1"), own("1")),  # created again with the proven template
        live(forged("2"), own("2")),  # and with another one
        live(forged("2", uid="u0"), own("2")),
        live(forged("3"), with_proof(own("3"), proof("3", 9e12))),  # one that was proven earlier
        live(forged("2"), with_proof(own("2"), proof("2", 9e12))),
    ],
)
def test_only_the_state_has_a_proof(cluster: Live) -> None:
    for stored in (STORED, replace(STORED, proof=replace(FIRST, since=1.0))):
        read = template_history.read(KEY, cluster, stored, in_git("1"), 9.0)
        assert read == replace(stored, uid=read.uid)
        again = template_history.read(KEY, cluster, read, in_git("2"), 9.0)
        assert again == read


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize(("tag", "commit"), [("1", "c9"), ("2", "")])
def test_the_template_in_force_without_a_record_has_a_commit_only_if_git_has_it(
    tag: str, commit: str, generation: int
) -> None:
    body = forged(tag, generation=generation)
    read = template_history.read(KEY, live(body, own(tag)), NOTHING, in_git("1"), 9.0)
    assert read.proof is not None
    assert (read.proof.template, read.proof.commit) == (identity(tag), commit)
    assert read.proof.how is ProofKind.ADOPTED
    assert read.proof.source == (in_git("1").source if commit else "")
    assert read.earlier == ()


@pytest.mark.parametrize(
    ("cluster", "git", "body"),
    [
        (live(live_object("1")), "1", "1"),
        (live(live_object("1")), "2", "1"),  # the policy came with another template
        # edited before the policy was added, also as a new object
        (live(forged("9"), own("1"), own("9", 2)), "2", "1"),
        (live(forged("9")), "1", "1"),
        (live(forged("9"), own("9")), "2", "1"),  # and only the state has the template
    ],
)
def test_a_new_policy_adopts_the_template_that_was_applied_with_its_commit(
    cluster: Live, git: str, body: str
) -> None:
    read = template_history.read(KEY, cluster, applied("1"), in_git(git), 9.0)
    assert read.proof is not None
    assert (read.proof.template, read.proof.commit) == (identity("1"), "c1")
    assert proofs.identity(read.template) == identity(body)


def test_a_state_without_records_adopts_the_template_of_the_manifest_that_was_applied_last() -> (
    None
):
    git = replace(in_git("1"), is_recorded=True)
    read = template_history.read(KEY, live(forged("9"), own("9")), NOTHING, git, 9.0)
    assert read.proof is not None
    assert (read.proof.template, read.proof.commit) == (identity("1"), "c9")


@pytest.mark.parametrize("live_tag", ["1", "2", "9"])
def test_a_creation_without_an_answer_is_confirmed_by_what_admission_makes_of_git(
    live_tag: str,
) -> None:
    """The process ended between the creation and the write of the state. Admission makes 2 of 1."""
    announced = TemplateHistory(FIRST, template("1"))
    git = replace(in_git("1"), body=template("2"))
    read = template_history.read(KEY, live(forged(live_tag)), announced, git, 9.0)
    assert read.proof is not None
    assert read.proof.template == identity("2")
    assert (read.template, read.uid) == (template("2"), "u9")
    newer = template_history.read(KEY, live(forged(live_tag)), announced, in_git("3"), 9.0)
    assert newer.proof == FIRST
    never = template_history.read(KEY, live(None), announced, in_git("3"), 9.0)
    assert never == NOTHING


def test_the_answer_to_a_creation_is_the_template_in_force() -> None:
    announced = TemplateHistory(FIRST, template("1"))
    created = template_history.created(announced, forged("2"))
    assert created.proof == replace(FIRST, template=identity("2"))
    assert (created.template, created.uid, created.is_announced) == (template("2"), "u9", False)


def test_an_applied_template_has_the_first_commit_that_brought_it() -> None:
    first = template_history.recorded(NOTHING, in_git("1"), "u1")
    one = RecordedTemplate(identity("1"), in_git("1").source, "c9", body=template("1"))
    assert first.applied == one
    again = template_history.recorded(first, replace(in_git("1"), commit="c10"), "u2")
    assert again == replace(first, uid="u2")
    other = template_history.recorded(again, replace(in_git("2"), commit="c11"), "u2")
    two = RecordedTemplate(identity("2"), in_git("2").source, "c11", body=template("2"))
    assert other.applied == two


def test_without_a_policy_the_template_in_force_is_the_applied_one() -> None:
    left = template_history.without_policy(STORED)
    expected = RecordedTemplate(identity("1"), "", "c" * 40, body=template("1"))
    assert left == TemplateHistory(uid="u0", applied=expected)
    assert template_history.without_policy(TemplateHistory(FIRST, template("1"))) == NOTHING


def test_a_completed_rollout_is_in_force_and_released() -> None:
    halted = tuple(HaltedTemplate(tag, "c", 1.0, template=identity(tag)) for tag in "23")
    recorded = RecordedTemplate(identity("2"), "s2", "c2")
    before = TemplateHistory(proof("1"), template("1"), halted=halted, target=recorded)
    assert template_history.completed(before, target("2"), in_git("4")) == before
    done = target("2", proven=True)
    after = template_history.completed(before, done, in_git("4"))
    assert after.proof is not None
    assert (after.proof.template, after.template) == (identity("2"), template("2"))
    assert (after.proof.until, after.halted) == (0.0, halted[1:])
    assert (after.proof.commit, after.proof.source) == ("c2", "s2")
    assert [one.template for one in after.earlier] == [identity("1")]
    unknown = replace(before, target=None)
    assert template_history.completed(unknown, done, in_git("4")) == unknown
    of_git = template_history.completed(unknown, done, in_git("2")).proof
    assert of_git is not None
    assert (of_git.template, of_git.commit) == (identity("2"), "c9")


@pytest.mark.parametrize("tag", ["2", "9"])
def test_a_revision_that_is_not_the_recorded_target_completes_no_rollout(tag: str) -> None:
    """Annotations of the DaemonSet name it, and annotations of the revision state a proof."""
    recorded = RecordedTemplate(identity("3"), "s3", "c3")
    history = TemplateHistory(proof("1"), template("1"), target=recorded)
    named = with_proof(own(tag), proof(tag, 9e12))
    assert template_history.completed(history, named, in_git("3")) == history


def test_an_earlier_target_that_a_person_named_again_is_not_completed_again() -> None:
    earlier = with_proof(own("1"), proof("1"))
    history = TemplateHistory(proof("2", 5.0), template("2"))
    assert template_history.completed(history, earlier, in_git("1")) == history


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
    git = GitTemplate("new", {}, frozenset(), "c9")
    assert template_history.ended(history, None, git) == history
    (found,) = template_history.ended(history, current, git).halted
    assert found.ended == expected


def test_a_template_that_comes_into_force_again_leaves_the_earlier_ones() -> None:
    before = replace(STORED, earlier=(proof("3", 0.2), proof("4", 0.1)))
    after = template_history.in_force(before, proof("3", 0.2), template("3"), 9.0)
    assert after.proof == replace(proof("3", 0.2), since=9.0)
    assert after.earlier == (replace(proof("1"), until=9.0), proof("4", 0.1))
    again = template_history.in_force(after, after.proof, template("3"), 10.0)
    assert again.earlier == after.earlier


def test_a_daemonset_is_behind_the_first_commit_that_it_did_not_follow() -> None:
    following, followed = template_history.following, in_git("1").source
    applied_one = applied("1")
    assert following(applied_one, followed, NOTHING, "c1").behind == ""
    once = following(applied_one, None, NOTHING, "c1")
    assert once.behind == "c1"
    assert following(applied_one, "other", once, "c2").behind == "c1"
    assert following(applied_one, followed, once, "c3").behind == ""


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


def labelled(tag: str, label: str) -> dict[str, Any]:
    """The DaemonSet in Git with another selector and the label that it matches."""
    body = copy.deepcopy(dict(manifest(tag).body))
    body["spec"]["selector"] = {"matchLabels": {"app": label}}
    body["spec"]["template"]["metadata"]["labels"] = {"app": label}
    return body


@pytest.mark.parametrize(
    ("old", "git", "label"),
    [
        (None, labelled("2", "agent"), "agent"),
        (None, labelled("2", "other"), "other"),  # replaced
        (labelled("1", "other"), labelled("2", "other"), "other"),  # created, not recorded yet
        (labelled("1", "agent"), labelled("2", "other"), "agent"),  # refused
        (labelled("1", "third"), labelled("2", "other"), "agent"),  # of another writer
    ],
)
def test_the_proven_template_has_labels_that_the_selector_matches(
    old: dict[str, Any] | None, git: dict[str, Any], label: str
) -> None:
    history = TemplateHistory(proof("1"), template("1"), uid="u1")
    found = template_history.selected(history, old, git)
    assert found.template == labelled("1", label)["spec"]["template"]
    assert found.proof is not None
    assert found.proof.template == proofs.identity(found.template)
    assert (found == history) == (label == "agent")


def test_a_digest_that_an_earlier_version_stored_is_that_of_the_same_template() -> None:
    assert template_digests.digest(manifest("1")) == "6092f3978f165730"


def test_without_a_stored_state_the_template_that_the_daemonset_states_is_proven() -> None:
    def in_force(stated: str) -> str:
        annotations = {keys.PROVEN: proofs.encoded(proof(stated))}
        old = live_object("2", annotations=annotations)
        return tag_of(
            {"spec": {"template": template_history._baseline(old, (own("1"), own("2", 2)))}}
        )

    assert in_force("1") == "1"
    assert in_force("2") == "2"
    assert in_force("3") == "2"  # no revision has it: that of the DaemonSet
