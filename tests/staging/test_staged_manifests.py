"""What is written of a DaemonSet with a rollout policy, one state of the cluster a row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.live import Live, Revision
from gitops_ds.core.objects import CommitId, Digest, Key, digest_of
from gitops_ds.core.rollouts.proven_templates import (
    ProofKind,
    RecordedTemplate,
    TemplateHistory,
    TemplateProof,
)
from gitops_ds.core.rollouts.staged_rollout import Halt, RolloutRecord
from gitops_ds.core.rollouts.template_cause import TemplateCause
from gitops_ds.core.skip_reasons import SkipReason
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.core.values import replace
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.ownership.options import ApplyOptions, DryRunResult, FieldConflict, PlanContext
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.rollouts.staging import git_template, staging
from gitops_ds.rollouts.staging.staging import StagedBundle
from gitops_ds.rollouts.state import keys, proofs, target_revisions
from tests.staging.staged_objects import (
    KEY,
    bundle,
    live,
    live_object,
    manifest,
    own,
    tag_of,
    target,
    template,
)

CONTEXT = PlanContext(Stamp("test", commit="c2", subject="A change"))
EARLY = RolloutRecord(early=True)
HALTED = RolloutRecord(halt=Halt(1000.0, "canary", "CrashLoopBackOff on n1"))
ONE, TWO, THREE = own("1"), target("2"), target("3")
FINISH = {"supersede": "finish-first"}


EARLY_TWO = target(
    "2", EARLY, promoted=True, annotations={keys.PROVEN_REVISION: ONE.name}
)  # of a version without proofs
NAMES = {target(tag).name: tag for tag in "123"}


def answer(tag: str, **spec: str) -> dict[Key, DryRunResult]:
    """The dry run of a template, with defaults of the API server."""
    body = template(tag)
    body["spec"] |= spec
    return {KEY: DryRunResult({"spec": {"template": body}})}


def identity(tag: str) -> str:
    return proofs.identity(template(tag))


PROVEN_ONE = TemplateHistory(TemplateProof(identity("1"), "c1"), template("1"), uid="u1")
FIRST = TemplateProof(identity("1"), "c1", how=ProofKind.FIRST)
ANNOUNCED_ONE = TemplateHistory(FIRST, template("1"))


def written(bundle: StagedBundle) -> tuple[Manifest, Manifest | None]:
    """The DaemonSet and its target revision."""
    staged = bundle.bundle
    targets = [one for key, one in staged.manifests.items() if key.kind == "ControllerRevision"]
    assert len(targets) <= 1
    return staged.manifests[KEY], targets[0] if targets else None


def annotated(one: Manifest) -> dict[str, str]:
    return dict(one.body["metadata"].get("annotations") or {})


@pytest.mark.parametrize(
    ("git", "cluster", "policy", "expected"),
    [
        # a DaemonSet that the cluster does not have
        ("2", live(None), {}, ("2", "", "")),
        # the cluster has the template of Git
        ("1", live(live_object("1"), ONE), {}, ("1", "", "")),
        # a new one: the rollout begins
        ("2", live(live_object("1"), ONE), {}, ("1", "2", "2")),
        # the rollout is in progress
        ("2", live(live_object("1", TWO.name), ONE, TWO), {}, ("1", "2", "2")),
        ("2", live(live_object("1", TWO.name), ONE, target("2", HALTED)), {}, ("1", "2", "2")),
        # another template replaces it, and its rollout begins
        ("3", live(live_object("1", TWO.name), ONE, TWO), {}, ("1", "3", "3")),
        # the rollout is complete, and the template follows
        (
            "2",
            live(live_object("1", TWO.name), ONE, target("2", proven=True)),
            {},
            ("2", "", ""),
        ),
        # the DaemonSet gets the template early, and keeps the target until the rollout is complete
        (
            "2",
            live(live_object("1", TWO.name), ONE, target("2", EARLY, promoted=True)),
            {},
            ("2", "2", ""),
        ),
        (
            "2",
            live(live_object("2", TWO.name), ONE, EARLY_TWO),
            {},
            ("2", "2", ""),
        ),
        # an early rollout was replaced, and its template is in Git again
        (
            "2",
            live(
                live_object("1", THREE.name),
                ONE,
                target("2", promoted=True),
                THREE,
            ),
            {},
            ("1", "2", ""),
        ),
        # a revert: the template is the proven one
        ("1", live(live_object("1", TWO.name), ONE, TWO), {}, ("1", "", "")),
        # a revision that only exists proves nothing: here 2 is adopted
        ("1", live(live_object("2"), ONE, own("2", 2)), {}, ("2", "1", "1")),
        # a rollout is replaced while it ends first
        ("3", live(live_object("1", TWO.name), ONE, TWO), FINISH, ("1", "2", "2")),
        (
            "3",
            live(live_object("2", TWO.name), ONE, target("2", EARLY, promoted=True)),
            FINISH,
            ("2", "2", ""),
        ),
        ("3", live(live_object("1", TWO.name), ONE, target("2", HALTED)), FINISH, ("1", "3", "3")),
        ("1", live(live_object("1", TWO.name), ONE, TWO), FINISH, ("1", "", "")),
        ("2", live(live_object("1", TWO.name), ONE, TWO), FINISH, ("1", "2", "2")),
    ],
)
def test_the_template_its_target_and_the_revision_that_are_written(
    git: str, cluster: Live, policy: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    """Of the DaemonSet its template and the template of its target, and that of the revision."""
    staged = staging.staged(bundle(manifest(git), **policy), cluster, CONTEXT, answer(git))
    daemonset, revision = written(staged)
    name = annotated(daemonset).get(keys.TARGET, "")
    held = ""
    if revision is not None:
        assert revision.key == Key("apps", "ControllerRevision", KEY.namespace, name)
        held = tag_of(revision.body["data"])
    assert (tag_of(daemonset.body), NAMES.get(name.removesuffix("-target"), name), held) == expected
    manifests = staged.bundle.manifests
    assert list(manifests) == sorted(manifests)
    assert all(one.digest == digest_of(one.body) for one in manifests.values())


@pytest.mark.parametrize(
    ("known", "kept"), [(TWO, ("1", "2", "2")), (target("2", EARLY, promoted=True), ("2", "2", ""))]
)
def test_a_template_that_waits_for_the_rollout_before_is_reported(
    known: Revision, kept: tuple[str, str, str]
) -> None:
    known.raw["metadata"]["annotations"][names.COMMIT] = "0123456789abcdef"
    cluster = live(live_object(kept[0], known.name), ONE, known)
    staged = staging.staged(bundle(manifest("3"), **FINISH), cluster, CONTEXT, answer("3"))
    (skipped,) = staged.bundle.refusals
    assert skipped.reason is SkipReason.FINISH_FIRST
    assert skipped.key == KEY
    assert skipped.message == (
        f"the template of {KEY} waits for the end of the rollout of commit 0123456789ab "
        "(supersede: finish-first)"
    )
    del known.raw["metadata"]["annotations"][names.COMMIT]
    staged = staging.staged(bundle(manifest("3"), **FINISH), cluster, CONTEXT, answer("3"))
    (skipped,) = staged.bundle.refusals
    assert "waits for the end of the rollout (supersede" in skipped.message


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({}, ""),
        ({KEY: DryRunResult(refused="no")}, "the API server refuses it: no"),
        ({KEY: DryRunResult(conflicts=(FieldConflict("vpa", "spec"),))}, "spec is owned by vpa"),
    ],
)
def test_without_a_dry_run_the_daemonset_stays_as_it_is_and_the_reason_is_reported(
    answers: dict[Key, DryRunResult], message: str
) -> None:
    for old in (live_object("1"), live_object("1", TWO.name)):
        staged = staging.staged(bundle(manifest("3")), live(old, ONE, TWO), CONTEXT, answers)
        daemonset, revision = written(staged)
        assert tag_of(daemonset.body) == "1"
        assert annotated(daemonset).get(keys.TARGET) == (
            old["metadata"]["annotations"].get(keys.TARGET)
        )
        assert revision is None
        assert [refusal.key for refusal in staged.bundle.refusals] == [KEY] * bool(message)
        assert all(message in refusal.message for refusal in staged.bundle.refusals)


@pytest.mark.parametrize(
    ("git", "cluster", "requested"),
    [
        ("1", live(None), False),
        ("1", live(live_object("1"), ONE), False),
        ("2", live(live_object("1"), ONE), True),
        ("1", live(live_object("1", fields={"f:metadata": {}}), ONE), False),  # of another owner
    ],
)
def test_an_unknown_template_needs_a_dry_run(git: str, cluster: Live, requested: bool) -> None:
    one = manifest(git)
    assert staging.to_ask(bundle(one), cluster, CONTEXT) == ((one,) if requested else ())


def recorded(history: TemplateHistory, digest: str = "") -> PlanContext:
    """The context of a state that has a history of the DaemonSet."""
    digests = {KEY: Digest(digest)} if digest else {}
    return replace(CONTEXT, state=DeployerState(templates={KEY: history}, digests=digests))


@pytest.mark.parametrize(
    ("context", "requested"),
    [
        (recorded(PROVEN_ONE), False),
        (recorded(TemplateHistory(applied=RecordedTemplate(identity("1")))), False),
        (recorded(TemplateHistory(applied=RecordedTemplate(identity("3")))), True),
        (recorded(ANNOUNCED_ONE), False),
        (recorded(replace(ANNOUNCED_ONE, uid="u1")), False),
        (recorded(replace(ANNOUNCED_ONE, proof=replace(FIRST, template="other"))), True),
        (CONTEXT, True),  # nothing is recorded, and the live template is not that of Git
    ],
)
def test_a_dry_run_shows_what_is_proven_if_the_state_does_not(
    context: PlanContext, requested: bool
) -> None:
    cluster, one = live(live_object("1", TWO.name), ONE, TWO), manifest("2")
    assert bool(staging.to_ask(bundle(one), cluster, context)) == requested


def test_the_target_has_what_admission_adds_and_nothing_of_other_writers() -> None:
    def templates(answers: DryRunResult) -> tuple[str, str]:
        cluster, one = live(live_object("1"), ONE), bundle(manifest("2"))
        staged = staging.staged(one, cluster, recorded(PROVEN_ONE), {KEY: answers})
        _, revision = written(staged)
        assert revision is not None
        target = staged.histories[KEY].target
        template = dict(revision.body["data"]["spec"]["template"])
        del template["$patch"]
        assert target is not None
        assert target.template == proofs.identity(template)
        spec = template["spec"]
        return spec.get("dnsPolicy", ""), spec.get("nodeName", "")

    updated = answer("2", dnsPolicy="Default", nodeName="edited")[KEY].body
    created = answer("2", dnsPolicy="Default")[KEY].body
    assert templates(DryRunResult(updated, created=created)) == ("Default", "")
    assert templates(DryRunResult(updated)) == ("ClusterFirst", "")  # the text of Git
    assert templates(answer("2")[KEY]) == ("", "")


def test_only_daemonsets_of_agents_with_a_policy_are_staged() -> None:
    other = manifest("2", replace(KEY, name="other"), agent="other")
    config = manifest("2", Key("", "ConfigMap", "infra", "agent"))
    plain = bundle(other, config)
    assert staging.staged(plain, live(None), CONTEXT).bundle.manifests == plain.manifests
    without = replace(bundle(manifest("2")), rollouts={})
    assert staging.staged(without, live(None), CONTEXT).bundle is without


@pytest.mark.parametrize(
    ("policy", "target_name", "type"),
    [
        ({}, "", "OnDelete"),
        ({}, TWO.name, "OnDelete"),
        ({"atRest": "RollingUpdate"}, "", "RollingUpdate"),
        ({"atRest": "RollingUpdate"}, TWO.name, "OnDelete"),
    ],
)
def test_the_update_strategy_is_that_of_git_at_rest_only_where_the_policy_permits(
    policy: dict[str, Any], target_name: str, type: str
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}
    cluster = live(live_object("1", target_name), ONE, *([TWO] if target_name else []))
    git = "2" if target_name else "1"
    specs: tuple[dict[str, Any], ...] = ({"updateStrategy": strategy}, {})
    for spec in specs:
        staged = staging.staged(bundle(manifest(git, **spec), **policy), cluster, CONTEXT)
        daemonset, _ = written(staged)
        found = daemonset.body["spec"]["updateStrategy"]
        at_rest = spec.get("updateStrategy") or {"type": "RollingUpdate"}
        assert found == (at_rest if type == "RollingUpdate" else {"type": "OnDelete"})
        kept = json.loads(annotated(daemonset)[keys.UPDATE_STRATEGY])
        assert kept == spec.get("updateStrategy", {})


@pytest.mark.parametrize(
    ("cluster", "phase"),
    [
        (live(live_object("2"), own("2", 2)), "Complete"),
        (live(live_object("1", TWO.name), ONE, TWO), "Progressing"),
        (live(live_object("1", TWO.name), ONE, target("2", HALTED), THREE), "Halted"),
        (live(live_object("1", TWO.name), ONE, TWO, target("3", HALTED)), "Progressing"),
    ],
)
def test_the_phase_of_the_rollout(cluster: Live, phase: str) -> None:
    staged = staging.staged(bundle(manifest("2")), cluster, CONTEXT)
    assert annotated(written(staged)[0])[keys.PHASE] == phase


def test_annotations_of_git_stay_and_halted_templates_are_kept() -> None:
    one = manifest("2", annotations={"team": "a"})
    cluster = live(live_object("1", TWO.name), ONE, target("2", HALTED))
    found = annotated(written(staging.staged(bundle(one), cluster, CONTEXT))[0])
    assert found["team"] == "a"
    assert "CrashLoopBackOff" in found[keys.HALTED]
    cluster = live(live_object("1", TWO.name), ONE, TWO)
    assert keys.HALTED not in annotated(written(staging.staged(bundle(one), cluster, CONTEXT))[0])
    cluster = live(None)
    assert keys.HALTED not in annotated(written(staging.staged(bundle(one), cluster, CONTEXT))[0])


BY_NAME: dict[str, str] = {**vars(names), **vars(keys)}


def facts(cluster: Live, context: PlanContext = CONTEXT, **metadata: Any) -> dict[str, str]:
    """The annotations of the target revision of template 2."""
    one = manifest("2", **metadata)
    _, revision = written(staging.staged(bundle(one), cluster, context, answer("2")))
    assert revision is not None
    found = annotated(revision)
    assert found.pop(keys.TEMPLATE_DIGEST) == template_digests.digest(one)
    return found


def known_by(tag: str, **facts: str) -> Revision:
    return target(tag, annotations={BY_NAME[one]: value for one, value in facts.items()})


BEFORE = replace(CONTEXT, state=DeployerState(last_attempted=CommitId("c1")))
CAUSE = names.CHANGE_CAUSE


@pytest.mark.parametrize(
    ("cluster", "context", "git", "expected"),
    [
        # the first commit with the template
        (
            live(live_object("1"), ONE),
            BEFORE,
            {},
            {"COMMIT": "c2", "SINCE": "c1", "CHANGE_CAUSE": "A change"},
        ),
        # without a commit before, and without a proved revision
        (
            live(live_object("1")),
            CONTEXT,
            {},
            {"COMMIT": "c2", "CHANGE_CAUSE": "A change"},
        ),
        # the commit itself was attempted before
        (
            live(live_object("1")),
            replace(CONTEXT, state=DeployerState(last_attempted=CommitId("c2"))),
            {},
            {"COMMIT": "c2", "CHANGE_CAUSE": "A change"},
        ),
        # a later commit with the same template
        (
            live(
                live_object("1", TWO.name),
                ONE,
                known_by("2", COMMIT="c0", SINCE="b", CHANGE_CAUSE="Earlier"),
            ),
            BEFORE,
            {},
            {"COMMIT": "c0", "SINCE": "b", "CHANGE_CAUSE": "Earlier"},
        ),
        # it replaces a rollout: the way back is to the commit before that one
        (
            live(
                live_object("1", THREE.name),
                ONE,
                known_by("3", COMMIT="c1", SINCE="b", CHANGE_CAUSE="Bad"),
            ),
            BEFORE,
            {},
            {"COMMIT": "c2", "SINCE": "b", "CHANGE_CAUSE": "A change"},
        ),
        # the annotation of the manifest wins
        (
            live(live_object("1"), ONE),
            CONTEXT,
            {CAUSE: "Ours"},
            {"COMMIT": "c2", "CHANGE_CAUSE": "Ours"},
        ),
        # the rollout before is complete, and its template is not written yet
        (
            live(live_object("1", THREE.name), ONE, target("3", proven=True)),
            CONTEXT,
            {},
            {"COMMIT": "c2", "CHANGE_CAUSE": "A change"},
        ),
        # it was not complete
        (
            live(live_object("1", THREE.name), ONE, target("3", EARLY, promoted=True)),
            CONTEXT,
            {},
            {"COMMIT": "c2", "CHANGE_CAUSE": "A change"},
        ),
    ],
)
def test_the_target_revision_names_its_commit_the_one_before_and_the_proved_revision(
    cluster: Live, context: PlanContext, git: dict[str, str], expected: dict[str, str]
) -> None:
    found = facts(cluster, context, annotations=git)
    assert found == {BY_NAME[name]: value for name, value in expected.items()}


def test_a_target_revision_names_the_approvers_of_the_repository() -> None:
    options = ApplyOptions(approvers=frozenset({"team-b", "team-a"}))
    found = facts(live(live_object("1")), replace(CONTEXT, options=options))
    assert found[keys.APPROVERS] == "team-a,team-b"
    assert keys.APPROVERS not in facts(live(live_object("1")))


def test_without_a_commit_the_target_revision_names_none() -> None:
    found = facts(live(live_object("1")), PlanContext(Stamp("test")))
    assert found == {}


def test_a_target_is_known_by_the_template_in_git() -> None:
    one = manifest("2")
    nothing = TemplateHistory()
    assert git_template.known_target(one, live(live_object("1"), ONE, THREE, TWO), nothing) == TWO
    assert git_template.known_target(one, live(live_object("1"), ONE, THREE), nothing) is None
    digest = template_digests.digest(one)
    forged = target("3", annotations={keys.TEMPLATE_DIGEST: digest})
    assert git_template.known_target(one, live(live_object("1"), forged), nothing) is None
    changed = TemplateHistory(target=RecordedTemplate(identity("3"), digest))  # by admission
    assert git_template.known_target(one, live(live_object("1"), forged), changed) == forged
    assert not target_revisions.is_promoted(TWO)
    with_strategy = manifest("2", updateStrategy={"type": "OnDelete"})
    assert git_template.known_target(with_strategy, live(live_object("1"), TWO), nothing) == TWO


def test_a_target_that_a_person_named_is_emptied_then_removed() -> None:
    for owner, expected in (("kubectl-annotate", {keys.TARGET: ""}), (names.FIELD_MANAGER, {})):
        object = live_object("1", ONE.name)
        fields = {"f:metadata": {"f:annotations": {f"f:{keys.TARGET}": {}}}}
        object["metadata"]["managedFields"].append(
            {"manager": owner, "operation": "Update", "fieldsV1": fields}
        )
        daemonset, revision = written(
            staging.staged(bundle(manifest("1")), live(object, ONE), CONTEXT)
        )
        kept = {k: v for k, v in annotated(daemonset).items() if k == keys.TARGET}
        assert (kept, revision) == (expected, None)


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_rollback_has_the_complete_template_while_its_revision_exists(is_kept: bool) -> None:
    whole = template("1")
    whole["spec"]["dnsPolicy"] = "Default"
    kept = replace(ONE, template=whole)
    earlier = TemplateProof(
        proofs.identity(whole), "c1", source=template_digests.digest(manifest("1")), until=1.0
    )
    history = TemplateHistory(
        TemplateProof(identity("2"), "c2"), template("2"), earlier=(earlier,), uid="u1"
    )
    cluster = live(live_object("2"), own("2", 2), *([kept] if is_kept else []))
    staged = staging.staged(bundle(manifest("1")), cluster, recorded(history))
    after = staged.histories[KEY]
    assert after.proof is not None
    assert after.proof.template == earlier.template
    assert after.template == (whole if is_kept else template("1"))


@pytest.mark.parametrize(
    ("stated", "is_shown", "commit"),
    [
        ("1", True, "c0"),
        ("1", False, "c2"),
        ("9", True, "c2"),  # of another template
        ("", True, "c2"),
    ],
)
def test_a_plan_that_is_only_shown_states_the_proof_of_the_cluster(
    stated: str, is_shown: bool, commit: str
) -> None:
    proof = TemplateProof(identity(stated), "c0", source="earlier") if stated else None
    annotations = {keys.PROVEN: proofs.encoded(proof)} if proof else {}
    cluster = live(live_object("1", annotations=annotations), ONE)
    context = replace(CONTEXT, options=ApplyOptions(is_shown_only=True)) if is_shown else CONTEXT
    daemonset, _ = written(staging.staged(bundle(manifest("1")), cluster, context))
    found = proofs.in_force(annotated(daemonset))
    assert found is not None
    assert (found.template, found.commit) == (identity("1"), commit)
    assert found.source == template_digests.digest(manifest("1"))


@pytest.mark.parametrize(
    ("policy", "held", "answers", "tag"),
    [
        ({}, (), answer("3"), "3"),
        (FINISH, (), answer("3"), "2"),  # it waits for the rollout before
        ({}, ("c2",), answer("3"), "2"),
        ({}, (), {KEY: DryRunResult(refused="no")}, "2"),
    ],
)
def test_the_recorded_target_stays_while_the_daemonset_keeps_it(
    policy: dict[str, Any], held: tuple[str, ...], answers: dict[Key, DryRunResult], tag: str
) -> None:
    running = RecordedTemplate(identity("2"), template_digests.digest(manifest("2")), "c1")
    context = replace(
        recorded(replace(PROVEN_ONE, target=running)),
        stamp=replace(CONTEXT.stamp, causes={KEY: TemplateCause("3", "c2")}),
        options=ApplyOptions(held=held),
    )
    cluster = live(live_object("1", TWO.name), ONE, TWO)
    after = staging.staged(bundle(manifest("3"), **policy), cluster, context, answers)
    kept = after.histories[KEY].target
    assert kept is not None
    assert kept.template == identity(tag)
    assert (kept == running) is (tag == "2")


def test_the_words_of_a_plan_are_those_of_existing_daemonsets_with_a_policy() -> None:
    one, cluster = bundle(manifest("2")), live(live_object("1"), ONE)
    (words,) = staging.words(one, cluster, CONTEXT).values()
    assert words == "starts at the canary: this template is not proven"
    assert staging.words(one, live(None), CONTEXT) == {}
    assert staging.words(replace(one, rollouts={}), cluster, CONTEXT) == {}


def test_a_rendered_commit_has_the_digests_of_all_manifests_and_of_templates() -> None:
    config = manifest("2", Key("", "ConfigMap", "infra", "agent"))
    one = manifest("2")
    found = template_digests.rendered(bundle(one, config))
    assert found.manifests == {KEY: one.digest, config.key: config.digest}
    assert found.templates == {KEY: template_digests.digest(one)}


@pytest.mark.parametrize(("tag", "is_same_name"), [("2", True), ("3", False)])
def test_a_revision_with_the_name_of_the_target_is_written_again_only_with_its_template(
    tag: str, is_same_name: bool
) -> None:
    """Another writer removed the digest from its annotations, or made one with another template."""
    other = replace(target(tag), name=TWO.name)
    del other.raw["metadata"]["annotations"][keys.TEMPLATE_DIGEST]
    cluster = replace(
        live(live_object("1"), ONE, other), revision_names=frozenset({(KEY.namespace, TWO.name)})
    )
    staged = staging.staged(bundle(manifest("2")), cluster, recorded(PROVEN_ONE), answer("2"))
    _, revision = written(staged)
    assert revision is not None
    assert (revision.key.name == TWO.name) is is_same_name


def test_a_commit_on_hold_keeps_the_template_that_the_daemonset_got_early() -> None:
    cluster = live(live_object("2", TWO.name), ONE, target("2", EARLY, promoted=True))
    stamp = replace(CONTEXT.stamp, causes={KEY: TemplateCause("2", "c2")})
    context = replace(recorded(PROVEN_ONE), stamp=stamp, options=ApplyOptions(held=("c2",)))
    staged = staging.staged(bundle(manifest("2")), cluster, context, answer("2"))
    assert [one.reason for one in staged.bundle.refusals] == [SkipReason.HELD]
    daemonset, _ = written(staged)
    assert (tag_of(daemonset.body), annotated(daemonset)[keys.TARGET]) == ("2", TWO.name)


@pytest.mark.parametrize(
    ("exact", "known", "commits"),
    [
        (True, (), ("c2", "c1")),
        (True, ("c0",), ("c2", "c1")),
        (False, ("c0",), ("c0",)),  # a rewritten branch has the template by other commits
        (False, (), ()),
    ],
)
def test_the_recorded_target_has_the_commits_that_gave_its_template(
    exact: bool, known: tuple[str, ...], commits: tuple[str, ...]
) -> None:
    source = template_digests.digest(manifest("2"))
    every = (CommitId("c2"), CommitId("c1"))
    cause = TemplateCause(source, "c2", commits=every, exact=exact)
    before = RecordedTemplate(identity("2"), source, "c0", commits=known)
    history = replace(PROVEN_ONE, target=before)
    context = replace(recorded(history), stamp=replace(CONTEXT.stamp, causes={KEY: cause}))
    cluster = live(live_object("1", TWO.name), ONE, TWO)
    after = staging.staged(bundle(manifest("2")), cluster, context, answer("2"))
    kept = after.histories[KEY].target
    assert kept is not None
    assert kept.commits == commits
