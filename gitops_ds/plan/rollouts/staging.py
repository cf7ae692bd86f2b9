"""Staged rollouts in a plan: the DaemonSet keeps its proven template until the target revision,
which holds the new one, is one of the DaemonSet's own revisions.

The controller promotes it when every node is proved, or most are (`template.commit: late`): then it
remains the target, by its record, until the others are proved too. So the deployer needs no state
of rollouts: its writes follow from the manifest, the policy, and the revisions in the cluster. Any
other template among the DaemonSet's own revisions was proved before, or is a revert, and is written
at once; with the update strategy OnDelete this affects no pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gitops_ds.apimachinery import daemonsets, revisions
from gitops_ds.apimachinery.rollouts import halted_templates, target_revisions
from gitops_ds.model import content_hash, names
from gitops_ds.model.live import Live, Revision
from gitops_ds.model.objects import CONTROLLER_REVISION, Body, Key
from gitops_ds.model.rollouts import rollout_policy
from gitops_ds.model.rollouts.rollout_policy import RolloutPolicy
from gitops_ds.model.skipped import Skipped
from gitops_ds.model.sources.bundle import Bundle, Manifest
from gitops_ds.model.values import replace
from gitops_ds.plan import ownership, refusals
from gitops_ds.plan.options import DryRunResult, PlanContext
from gitops_ds.plan.rollouts import first_rollout, proven_template

NO_ANSWERS: Mapping[Key, DryRunResult] = {}


def to_ask(bundle: Bundle, live: Live) -> tuple[Manifest, ...]:
    """The DaemonSets with a policy whose complete template is unknown: a dry run returns it with
    its defaults.
    """
    return tuple(
        manifest
        for manifest in with_policy(bundle)
        if (old := live.objects.get(manifest.key)) is not None
        and known_target(manifest, live) is None
        and not _holds(old, manifest)
    )


def staged(
    bundle: Bundle,
    live: Live,
    context: PlanContext,
    answers: Mapping[Key, DryRunResult] = NO_ANSWERS,
) -> Bundle:
    """The bundle to write: DaemonSets with their policy, and the target revisions of rollouts."""
    manifests, skipped = dict(bundle.manifests), list(bundle.refusals)
    for manifest in with_policy(bundle):
        staging = _Staging(bundle, live, context, manifest)
        for one in staging.manifests(answers.get(manifest.key)):
            match one:
                case Manifest():
                    manifests[one.key] = one
                case Skipped():
                    skipped.append(one)
    if not bundle.rollouts:
        return bundle
    return replace(bundle, manifests=dict(sorted(manifests.items())), refusals=tuple(skipped))


def with_policy(bundle: Bundle) -> Iterator[Manifest]:
    """The DaemonSets of a bundle that have a rollout policy."""
    for manifest in bundle.manifests.values():
        if manifest.key.is_daemonset and manifest.agent in bundle.rollouts:
            yield manifest


class _Staging(msgspec.Struct, frozen=True):
    bundle: Bundle
    live: Live
    context: PlanContext
    manifest: Manifest

    def manifests(self, answer: DryRunResult | None) -> Iterator[Manifest | Skipped]:
        """The DaemonSet, its target revision while it has one, and why the template of Git waits
        for the rollout before.
        """
        old, of_git = (
            self.live.objects.get(self.manifest.key),
            known_target(self.manifest, self.live),
        )
        if old is None:
            yield self._daemonset("", self._template)
            return
        running = first_rollout.running(old, of_git, self._current(old), self._policy)
        if of_git is not None and target_revisions.is_promoted(of_git) and running is None:
            yield self._daemonset(of_git.name, self._template_of_unproved(old, of_git))
            return
        is_promoted = of_git is not None and target_revisions.is_promoted(of_git)
        if _holds(old, self.manifest) and not is_promoted:
            yield self._daemonset("", self._template)
            return
        if of_git is not None:
            template = of_git.template
        elif answer is not None and answer.body is not None:
            template = _template_of(answer.body)
        else:  # refused: the template is kept, so that its plan may have no change
            yield self._daemonset(_target_of(old), self._stable(old, self._current(old)))
            if answer is not None and answer.refused:
                yield refusals.rejected(self.manifest.key, answer.refused)
            elif answer is not None and answer.conflicts:
                yield refusals.conflict(self.manifest.key, answer.conflicts)
            return
        own = self.live.revisions.get(self.manifest.key, ())
        proved = (one for one in own if not target_revisions.is_unproved(one))
        if any(revisions.same_template(one.template, template) for one in proved):
            yield self._daemonset("", self._template)
            return
        if running is not None:
            yield from self._waiting(old, running)
            return
        target = self._target(old, template, of_git)
        yield target
        yield self._daemonset(target.key.name, self._stable(old, of_git or self._current(old)))

    def _waiting(self, old: Body, running: Revision) -> Iterator[Manifest | Skipped]:
        """The unchanged DaemonSet and target revision of the rollout that ends first."""
        if target_revisions.is_promoted(running):
            yield self._daemonset(running.name, self._stable(old, None))
        else:
            yield self._of_revision(target_revisions.renewed(daemonsets.daemonset_of(old), running))
            yield self._daemonset(running.name, self._stable(old, running))
        yield first_rollout.skipped(self.manifest.key, running)

    @property
    def _policy(self) -> RolloutPolicy:
        return rollout_policy.decode(self.bundle.rollouts[self.manifest.agent].document)

    def _template_of_unproved(self, old: Body, target: Revision) -> Body:
        """The template while the DaemonSet owns the target: that of Git, once most nodes have it;
        the present one if an earlier rollout of the same template was replaced.
        """
        if target_revisions.record_in(target).early:
            return self._template
        current = self._current(old)
        return self._stable(
            old, None if current is None or current.name == target.name else current
        )

    def _stable(self, old: Body, target: Revision | None) -> Body:
        own = self.live.revisions.get(self.manifest.key, ())
        name = self._completed(old) or proven_template.noted(target)
        return proven_template.of(old, self._template, own, name)

    def _completed(self, old: Body) -> str:
        """The name of the target whose rollout is complete, and whose template is not written yet;
        empty without one.
        """
        name, own = _target_of(old), self.live.revisions.get(self.manifest.key, ())
        complete = (
            one for one in own if one.name == name and not target_revisions.is_unproved(one)
        )
        return next((one.name for one in complete), "")

    def _current(self, old: Body) -> Revision | None:
        """The target revision of the rollout in progress."""
        targets, name = self.live.targets.get(self.manifest.key, ()), _target_of(old)
        return next((one for one in targets if one.name == name), None)

    @property
    def _template(self) -> Body:
        return _template_of(self.manifest.body)

    def _daemonset(self, target: str, template: Body) -> Manifest:
        source, body = self.bundle.rollouts[self.manifest.agent], self.manifest.body
        metadata, spec = body["metadata"], body["spec"]
        annotations = {
            **(metadata.get("annotations") or {}),
            names.ROLLOUT_POLICY: target_revisions.policy_text(
                source.document, self.bundle.cluster.pools
            ),
            names.UPDATE_STRATEGY: _text(spec.get("updateStrategy") or {}),
            **({names.TARGET: target} if target else {}),
            names.PHASE: self._phase(target),
            **self._halted(),
        }
        return _rewritten(
            self.manifest,
            {
                **body,
                "metadata": {**metadata, "annotations": annotations},
                "spec": {**spec, "template": template, **self._strategy(target)},
            },
        )

    def _phase(self, target: str) -> str:
        """The state of the rollout in one word, for other tools."""
        if not target:
            return "Complete"
        targets = self.live.targets.get(self.manifest.key, ())
        records = (target_revisions.record_in(one) for one in targets if one.name == target)
        return "Halted" if any(one.halt is not None for one in records) else "Progressing"

    def _strategy(self, target: str) -> Mapping[str, Any]:
        """The update strategy: OnDelete, and that of Git at rest with `atRest: RollingUpdate`."""
        spec = self.manifest.body["spec"]
        if target or self._policy.at_rest == "OnDelete":
            return {"updateStrategy": {"type": "OnDelete"}}
        return {"updateStrategy": spec.get("updateStrategy") or {"type": "RollingUpdate"}}

    def _halted(self) -> Mapping[str, str]:
        """The annotation with the halted templates, which a later commit may contain again."""
        key, old = self.manifest.key, self.live.objects.get(self.manifest.key)
        kept = halted_templates.remembered(
            (old or {}).get("metadata") or {},
            self.live.targets.get(key, ()),
            self.live.revisions.get(key, ()),
        )
        return {names.HALTED: halted_templates.encoded(kept)} if kept else {}

    def _target(self, old: Body, template: Body, revision: Revision | None) -> Manifest:
        stamp = self.context.stamp
        commit = (revision and _annotation(revision, names.COMMIT)) or stamp.commit
        # as the built-in controller copies it, for kubectl rollout history
        cause = (revision and _annotation(revision, names.CHANGE_CAUSE)) or stamp.subject
        cause = _annotations(self.manifest.body).get(names.CHANGE_CAUSE) or cause
        body = target_revisions.body_of(daemonsets.daemonset_of(old), template, commit)
        own = self.live.revisions.get(self.manifest.key, ())
        proven = self._completed(old)
        proven = proven or proven_template.revision_name(old, own, revision or self._current(old))
        since = self._since(old, revision, commit)
        body["metadata"]["annotations"] |= {
            names.TEMPLATE_DIGEST: template_digest(self.manifest),
            **({names.PROVEN_REVISION: proven} if proven else {}),
            **({names.SINCE: since} if since else {}),
            **({names.CHANGE_CAUSE: cause} if cause else {}),
        }
        return self._of_revision(body)

    def _of_revision(self, body: dict[str, Any]) -> Manifest:
        key = Key(
            CONTROLLER_REVISION.group,
            CONTROLLER_REVISION.kind,
            self.manifest.key.namespace,
            str(body["metadata"]["name"]),
        )
        if approvers := self.context.options.approvers:
            body["metadata"]["annotations"][names.APPROVERS] = ",".join(sorted(approvers))
        return _rewritten(replace(self.manifest, key=key), body)

    def _since(self, old: Body, revision: Revision | None, commit: str) -> str:
        """The last commit without this template and without that of a replaced rollout."""
        revision = revision or self._current(old)
        since = (
            revision and _annotation(revision, names.SINCE)
        ) or self.context.state.last_attempted
        return since if since and since != commit else ""


def known_target(manifest: Manifest, live: Live) -> Revision | None:
    """The target revision in the cluster that was made from this manifest's template."""
    digest = template_digest(manifest)
    return next(
        (
            one
            for one in live.targets.get(manifest.key, ())
            if _annotation(one, names.TEMPLATE_DIGEST) == digest
        ),
        None,
    )


def _annotations(body: Body) -> Mapping[str, Any]:
    return (body.get("metadata") or {}).get("annotations") or {}


def _annotation(revision: Revision, name: str) -> str:
    return str(_annotations(revision.raw).get(name) or "")


def _holds(old: Body, manifest: Manifest) -> bool:
    """Whether the live DaemonSet certainly has the manifest's template: we own exactly its fields,
    with its values.
    """
    spec = {**old["spec"], "template": _template_of(manifest.body)}
    return ownership.holds_part(old, {**old, "spec": spec}, ("spec", "template"))


def _template_of(body: Body) -> Body:
    template: Body = (body.get("spec") or {}).get("template") or {}
    return template


def _target_of(old: Body) -> str:
    return str((old["metadata"].get("annotations") or {}).get(names.TARGET) or "")


def template_digest(manifest: Manifest) -> str:
    """The digest of the template in Git, without the defaults of the API server."""
    return content_hash.digest(_template_of(manifest.body))[:16]


def _rewritten(manifest: Manifest, body: dict[str, Any]) -> Manifest:
    return replace(manifest, body=body, digest=content_hash.digest(body))


def _text(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
