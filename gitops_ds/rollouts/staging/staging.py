"""Staged rollouts in a plan: the DaemonSet keeps its proven template until the target revision,
which holds the new one, is proven.

The kind of target follows from what is proven (`targets`), not from the revisions that exist.
The controller proves a target revision when every node is proved; with `template.commit: late` the
DaemonSet gets its template before. A proven template is written at once: with the update strategy
OnDelete this affects no pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import cached_property
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.live import Live, Revision
from gitops_ds.core.objects import CONTROLLER_REVISION, Body, Key, annotations_of, digest_of
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.proven_templates import (
    ProofKind,
    RecordedTemplate,
    TemplateHistory,
    TemplateProof,
)
from gitops_ds.core.rollouts.rollout_policy import RolloutPolicy
from gitops_ds.core.skip_reasons import Skipped
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import daemonsets, revisions
from gitops_ds.ownership import refused_writes
from gitops_ds.ownership.options import NO_ANSWERS, DryRunResult, PlanContext
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.rollouts.staging import git_template, targets, template_history
from gitops_ds.rollouts.staging.git_template import GitTemplate
from gitops_ds.rollouts.staging.targets import TargetKind, TargetView, WantedTemplate
from gitops_ds.rollouts.state import halted_templates, proofs, rollout_annotations, target_revisions
from gitops_ds.rollouts.state.daemonset_statements import RolloutPhase, RolloutStatements


def to_ask(bundle: Bundle, live: Live, context: PlanContext) -> tuple[Manifest, ...]:
    """The DaemonSets with a policy whose complete template is unknown: a dry run returns it with
    its defaults.
    """
    stagings = (_Staging.of(bundle, live, context, manifest) for manifest in with_policy(bundle))
    return tuple(staging.manifest for staging in stagings if staging.is_unknown)


class StagedBundle(msgspec.Struct, frozen=True):
    """The bundle to write, and what is proven about the templates of its DaemonSets afterwards.

    `words` explain the targets of the existing ones.
    """

    bundle: Bundle
    histories: Mapping[Key, TemplateHistory]
    words: Mapping[Key, str] = {}


def staged(
    bundle: Bundle,
    live: Live,
    context: PlanContext,
    answers: Mapping[Key, DryRunResult] = NO_ANSWERS,
) -> StagedBundle:
    """The bundle to write: DaemonSets with their policy, and the target revisions of rollouts."""
    manifests, skipped = dict(bundle.manifests), list(bundle.refusals)
    histories, reasons = dict[Key, TemplateHistory](), dict[Key, str]()
    for manifest in with_policy(bundle):
        staging = _Staging.of(bundle, live, context, manifest, answers.get(manifest.key))
        histories[manifest.key] = staging.after
        reasons[manifest.key] = staging.words
        for part in staging.manifests():
            match part:
                case Manifest():
                    manifests[part.key] = part
                case Skipped():
                    skipped.append(part)
    if not bundle.rollouts:
        return StagedBundle(bundle, histories, reasons)
    written = replace(bundle, manifests=dict(sorted(manifests.items())), refusals=tuple(skipped))
    return StagedBundle(written, histories, reasons)


def words(bundle: Bundle, live: Live, context: PlanContext) -> Mapping[Key, str]:
    """The kind of each target and its reason, of the existing DaemonSets with a policy."""
    stagings = (_Staging.of(bundle, live, context, manifest) for manifest in with_policy(bundle))
    return {staging.manifest.key: staging.words for staging in stagings if staging.words}


def with_policy(bundle: Bundle) -> Iterator[Manifest]:
    """The DaemonSets of a bundle that have a rollout policy."""
    for manifest in bundle.manifests.values():
        if manifest.key.is_daemonset and manifest.agent in bundle.rollouts:
            yield manifest


class _Staging(msgspec.Struct, frozen=True, dict=True):
    bundle: Bundle
    live: Live
    context: PlanContext
    manifest: Manifest
    history: TemplateHistory
    git: GitTemplate
    answer: DryRunResult | None = None
    is_open: bool = False  # only a dry run shows what is proven

    @classmethod
    def of(
        cls,
        bundle: Bundle,
        live: Live,
        context: PlanContext,
        manifest: Manifest,
        answer: DryRunResult | None = None,
    ) -> _Staging:
        """The staging of a manifest, with what is proven before it."""
        key, old = manifest.key, live.objects.get(manifest.key)
        stored = context.state.templates.get(key, TemplateHistory())
        git = git_template.read(manifest, answer, context)
        history = template_history.read(key, live, stored, git, context.now)
        name = targets.name_of(old) if old is not None else ""
        every = (*live.targets.get(key, ()), *live.revisions.get(key, ()))
        current = next((revision for revision in every if revision.name == name), None)
        history = template_history.ended(history, current, git)
        history = template_history.completed(history, current, git)
        history = template_history.selected(history, old, manifest.body)
        is_open = old is not None and template_history.is_open(old, stored, git)
        return cls(
            bundle, live, context, manifest, history, git, answer, is_open and answer is None
        )

    @cached_property
    def _old(self) -> Body | None:
        return self.live.objects.get(self.manifest.key)

    @cached_property
    def _known(self) -> Revision | None:
        return git_template.known_target(self.manifest, self.live, self.history, self.git)

    @cached_property
    def _wanted(self) -> WantedTemplate:
        """The template in Git, complete if a target revision or a dry run has it."""
        template: Body | None = None
        if self._known is not None:
            template = self._known.template
        elif self.answer is not None and self.answer.body is not None:
            template = self.git.body
        identity = proofs.identity(template) if template is not None else ""
        return WantedTemplate(template_digests.digest(self.manifest), identity)

    @cached_property
    def _target(self) -> targets.Target:
        rollback = self._policy.rollback
        return targets.target_of(self._wanted, self.history, rollback, self.context.now)

    @property
    def is_unknown(self) -> bool:
        """Whether only a dry run returns the complete template."""
        is_missing = self._known is None and self._target.proof is None
        return self._old is not None and (self.is_open or is_missing)

    @cached_property
    def words(self) -> str:
        """The kind of the target and its reason; empty for a DaemonSet that is created."""
        if self._old is None:
            return ""
        wanted, target = self._wanted, self._target
        if not wanted.template:  # without a cluster: with the known defaults
            wanted = replace(wanted, template=proofs.identity(self._template))
            target = targets.target_of(
                wanted, self.history, self._policy.rollback, self.context.now
            )
        own = self.live.revisions.get(self.manifest.key, ())
        current = self._current(self._old)
        is_rolling = current is not None and not target_revisions.is_promoted(current)
        view = TargetView(self._old["spec"]["template"], tuple(own), is_rolling)
        return targets.words_of(target, wanted, self.history, self._policy.rollback, view)

    @cached_property
    def after(self) -> TemplateHistory:
        """What is proven after the apply."""
        history, source = replace(self.history, target=self._recorded_target), self._wanted.source
        match self._target.kind:
            case TargetKind.NONE if history.proof is not None:
                return replace(history, proof=replace(history.proof, source=source))
            case TargetKind.ROLLBACK if self._target.proof is not None:
                proof = replace(self._target.proof, source=source)
                template = self._body_of(proof)
                return template_history.in_force(history, proof, template, self.context.now)
            case TargetKind.FORWARD if self._old is None and history.proof is None:
                return self._first(history)
            case _:
                return history

    def _first(self, history: TemplateHistory) -> TemplateHistory:
        """The history of a DaemonSet that is created: its first template is not staged."""
        template = self._template
        proof = TemplateProof(
            proofs.identity(template),
            self.git.commit,
            self.context.now,
            ProofKind.FIRST,
            self._wanted.source,
        )
        # Without a uid: until the API server has answered, it is announced only.
        history = replace(history, uid="", target=None)
        return template_history.in_force(history, proof, template, self.context.now)

    def _body_of(self, proof: TemplateProof) -> Body:
        """The complete template of an earlier proof, that of Git if no revision has it."""
        own = self.live.revisions.get(self.manifest.key, ())
        same = (
            revision.template
            for revision in own
            if proofs.identity(revision.template) == proof.template
        )
        return next(same, None) or self._template

    def manifests(self) -> Iterator[Manifest | Skipped]:
        """The DaemonSet, its target revision while it has one, and why the template of Git waits
        for the rollout before.
        """
        old = self._old
        if old is None:
            is_proven = self._target.kind in (TargetKind.NONE, TargetKind.ROLLBACK)
            if is_proven or self.history.proof is None:
                yield self._daemonset("", self._template)
                return
            proven = self._daemonset("", self.history.template)
            # Another commit than the applied one: the missing DaemonSet is not its drift.
            digest = digest_of([proven.digest, self._wanted.source])
            yield replace(proven, digest=digest)
            return
        if self._target.kind in (TargetKind.NONE, TargetKind.ROLLBACK):
            yield self._daemonset("", self._template)
            return
        current = self._current(old)
        running = targets.finishing_first(old, self._known, current, self._policy)
        if self._on_hold is not None:
            yield self._daemonset(targets.name_of(old), self._stable(old))
            yield self._on_hold
        elif running is not None:
            yield from self._waiting(old, running)
        elif self._known is not None and target_revisions.is_promoted(self._known):
            is_early = target_revisions.record_in(self._known).early
            template = self._template if is_early else self._stable(old)
            yield self._daemonset(self._known.name, template)
        elif self._known is not None or (self.answer is not None and self.answer.body is not None):
            target = self._target_revision(old)
            yield target
            yield self._daemonset(target.key.name, self._stable(old))
        else:  # refused: the template is kept, so that its plan may have no change
            yield self._daemonset(targets.name_of(old), self._stable(old))
            if self.answer is not None and self.answer.refused:
                yield refused_writes.rejected(self.manifest.key, self.answer.refused)
            elif self.answer is not None and self.answer.conflicts:
                yield refused_writes.conflict(self.manifest.key, self.answer.conflicts)

    @cached_property
    def _on_hold(self) -> Skipped | None:
        return refused_writes.on_hold(self.manifest, self.context)

    def _waiting(self, old: Body, running: Revision) -> Iterator[Manifest | Skipped]:
        """The unchanged DaemonSet and target revision of the rollout that ends first."""
        if not target_revisions.is_promoted(running):
            yield self._of_revision(target_revisions.renewed(daemonsets.daemonset_of(old), running))
        yield self._daemonset(running.name, self._stable(old))
        yield targets.waits(self.manifest.key, running)

    @cached_property
    def _policy(self) -> RolloutPolicy:
        return rollout_policy.decode(self.bundle.rollouts[self.manifest.agent])

    def _stable(self, old: Body) -> Body:
        """The proven template; that of the rollout in progress if the DaemonSet has it early."""
        current = self._current(old)
        if current is not None and target_revisions.record_in(current).early:
            known = self._known
            if known is not None and known.name == current.name:
                return self._template
        return template_history.kept_template(old, self._template, self.history.template)

    def _current(self, old: Body) -> Revision | None:
        """The target revision of the rollout in progress: the DaemonSet names it, and the deployer
        recorded its template.
        """
        known, name = self.live.targets.get(self.manifest.key, ()), targets.name_of(old)
        found = next((revision for revision in known if revision.name == name), None)
        target = self.history.target
        if found is None or target is None:
            return found
        recorded = {target.template, *self.git.identities}
        return found if proofs.identity(found.template) in recorded else None

    @property
    def _template(self) -> Body:
        return template_digests.template_of(self.manifest.body)

    def _daemonset(self, target: str, template: Body) -> Manifest:
        policy, body = self.bundle.rollouts[self.manifest.agent], self.manifest.body
        metadata, spec = body["metadata"], body["spec"]
        proof, halted = self.after.proof, self.after.halted
        stated = RolloutStatements(
            policy=target_revisions.policy_text(policy, self.bundle.cluster.pools),
            update_strategy=_text(spec.get("updateStrategy") or {}),
            target=target if target or self._has_foreign_target else None,
            phase=self._phase(target),
            proof=proofs.encoded(self._shown(proof)) if proof else None,
            # which a later commit may contain again
            halted=halted_templates.encoded(halted) if halted else None,
        )
        annotations = {**annotations_of(body), **stated.annotations}
        return _rewritten(
            self.manifest,
            {
                **body,
                "metadata": {**metadata, "annotations": annotations},
                "spec": {**spec, "template": template, **self._strategy(target)},
            },
        )

    def _shown(self, proof: TemplateProof) -> TemplateProof:
        """The proof to state. A plan that is only shown and lacks the state of the service takes
        the rest of the proof of the same template from the cluster, as the service has it.
        """
        stored = self.context.state.templates.get(self.manifest.key, TemplateHistory())
        if self._old is None or stored.proof is not None or not self.context.options.is_shown_only:
            return proof
        stated = proofs.in_force(annotations_of(self._old))
        if stated is None or stated.template != proof.template:
            return proof
        return replace(stated, source=proof.source or stated.source)

    @property
    def _has_foreign_target(self) -> bool:
        """Whether another writer named a target. An apply removes only what it owns, so one with an
        empty name comes before.
        """
        return self._old is not None and rollout_annotations.has_foreign_target(self._old)

    def _phase(self, target: str) -> RolloutPhase:
        if not target:
            return RolloutPhase.COMPLETE
        targets = self.live.targets.get(self.manifest.key, ())
        records = (target_revisions.record_in(known) for known in targets if known.name == target)
        is_halted = any(record.halt is not None for record in records)
        return RolloutPhase.HALTED if is_halted else RolloutPhase.PROGRESSING

    def _strategy(self, target: str) -> Mapping[str, Any]:
        """The update strategy: OnDelete, and that of Git at rest with `atRest: RollingUpdate`."""
        spec = self.manifest.body["spec"]
        if target or self._policy.at_rest == "OnDelete":
            return {"updateStrategy": {"type": "OnDelete"}}
        return {"updateStrategy": spec.get("updateStrategy") or {"type": "RollingUpdate"}}

    def _target_revision(self, old: Body) -> Manifest:
        known = self._known
        template = known.template if known is not None else self.git.body
        commit = self._target_commit(known)
        # as the built-in controller copies it, for kubectl rollout history
        cause = (known and _annotation(known, names.CHANGE_CAUSE)) or self.git.subject
        cause = annotations_of(self.manifest.body).get(names.CHANGE_CAUSE) or cause
        body = target_revisions.body_of(
            daemonsets.daemonset_of(old), template, commit, self._taken(template)
        )
        if known is not None:
            body["metadata"]["name"] = known.name
        since, recorded = self._since(old, known, commit), self._recorded_target
        commits = recorded.commits if recorded is not None else ()
        source = template_digests.digest(self.manifest)
        body["metadata"]["annotations"] |= {
            **target_revisions.stated(source, since, commits),
            **({names.CHANGE_CAUSE: cause} if cause else {}),
        }
        return self._of_revision(body)

    def _taken(self, template: Body) -> Set[str]:
        """The names of other revisions: of the DaemonSet, and of a target of another writer with
        another template, which only its deletion would replace.
        """
        key, identity = self.manifest.key, proofs.identity(template)
        names = {name for namespace, name in self.live.revision_names if namespace == key.namespace}
        targets = self.live.targets.get(key, ())
        same = {target.name for target in targets if proofs.identity(target.template) == identity}
        return (names - same) | {revision.name for revision in self.live.revisions.get(key, ())}

    def _of_revision(self, body: dict[str, Any]) -> Manifest:
        key = Key(
            CONTROLLER_REVISION.group,
            CONTROLLER_REVISION.kind,
            self.manifest.key.namespace,
            str(body["metadata"]["name"]),
        )
        if approvers := self.context.options.approvers:
            body["metadata"]["annotations"] |= rollout_annotations.stated_approvers(approvers)
        return _rewritten(replace(self.manifest, key=key), body)

    def _since(self, old: Body, revision: Revision | None, commit: str) -> str:
        """The last commit without this template and without that of a replaced rollout."""
        revision, target = revision or self._current(old), self.history.target
        since = target.since if target is not None else ""
        if revision is not None and target is None:  # of a version that recorded none
            since = target_revisions.since_of(revision)
        last = self.history.behind or self.context.state.last_attempted or ""
        since = (revision and since) or last
        return since if since and since != commit else ""

    def _target_commit(self, known: Revision | None) -> str:
        """The commit that brought the template of the target revision."""
        target = self.history.target
        if target is not None and target.source == self.git.source and not self.git.commits:
            return target.commit
        is_earlier = known is not None and target is None  # of a version that recorded none
        return (known and is_earlier and _annotation(known, names.COMMIT)) or self.git.commit

    @cached_property
    def _recorded_target(self) -> RecordedTemplate | None:
        """The record of the target revision that the DaemonSet has after the apply."""
        old = self._old
        if old is None or self._target.kind in (TargetKind.NONE, TargetKind.ROLLBACK):
            return None
        current = self._current(old)
        waits = targets.finishing_first(old, self._known, current, self._policy) is not None
        if waits or self._on_hold is not None or not self._wanted.template:
            return self.history.target
        commit = self._target_commit(self._known)
        since, target = self._since(old, self._known, commit), self.history.target
        is_same = target is not None and target.source == self.git.source
        # a rewritten branch has the template by other commits
        commits = self.git.commits or (target.commits if target is not None and is_same else ())
        source = self._wanted.source
        return RecordedTemplate(self._wanted.template, source, commit, since, commits=commits)


def _annotation(revision: Revision, name: str) -> str:
    return str(revisions.annotations_of(revision).get(name) or "")


def _rewritten(manifest: Manifest, body: dict[str, Any]) -> Manifest:
    return replace(manifest, body=body, digest=digest_of(body))


def _text(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
