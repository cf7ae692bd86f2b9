"""The template of a manifest, as far as answers of the API server show it, and its
target revision. Pure.
"""

from __future__ import annotations

import msgspec

from gitops_ds.core.live import Live, Revision
from gitops_ds.core.objects import Body
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.core.rollouts.template_cause import TemplateCause
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.kube.apimachinery import defaults
from gitops_ds.ownership import object_owner
from gitops_ds.ownership.options import DryRunResult, PlanContext
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.rollouts.state import proofs, target_revisions


class GitTemplate(msgspec.Struct, frozen=True):
    """The template of a manifest: the digest of its text (`source`), its body in the API server as
    far as it is known, the identities that it certainly has, the commit that gave it with its
    `subject`, and all commits that turned the template before into it.

    `is_recorded`: by the state, the same manifest was the last one that was applied.
    """

    source: str
    body: Body
    identities: frozenset[str]
    commit: str = ""
    is_recorded: bool = False
    commits: tuple[str, ...] = ()
    subject: str = ""

    @property
    def identity(self) -> str:
        """The identity of the body."""
        return proofs.identity(self.body)


def read(manifest: Manifest, answer: DryRunResult | None, context: PlanContext) -> GitTemplate:
    """The template of a manifest, complete if a dry run has returned it.

    The dry run of an update contains fields of other writers too. If its template is not the one in
    Git with defaults, a creation shows which fields are from admission.
    """
    text = template_digests.template_of(manifest.body)
    stored: Body | None = None
    if answer is not None and answer.created is not None:
        stored = template_digests.template_of(answer.created)
    elif answer is not None and answer.body is not None and is_of_git(answer.body, manifest):
        stored = template_digests.template_of(answer.body)
    stamp, cause = object_owner.stamp_of(manifest, context.stamp), _cause(manifest, context)
    return GitTemplate(
        template_digests.digest(manifest),
        defaults.defaulted_template(text) if stored is None else stored,
        frozenset(map(proofs.identity, (text,) if stored is None else (text, stored))),
        stamp.commit,
        is_recorded=context.state.digests.get(manifest.key) == manifest.digest,
        commits=cause.commits if cause is not None and cause.exact else (),
        subject=stamp.subject,
    )


def _cause(manifest: Manifest, context: PlanContext) -> TemplateCause | None:
    """The record of its commit; None for a manifest from an object of the cluster."""
    return None if manifest.holder is not None else context.stamp.causes.get(manifest.key)


def is_of_git(answer: Body, manifest: Manifest) -> bool:
    """Whether the template of an answer is exactly that of the manifest, with defaults."""
    return proofs.identity(template_digests.template_of(answer)) == proofs.identity(
        template_digests.template_of(manifest.body)
    )


def known_target(
    manifest: Manifest, live: Live, history: TemplateHistory, git: GitTemplate | None = None
) -> Revision | None:
    """The target revision in the cluster that was made from this manifest's template: its content
    is that of Git, or the one that the deployer recorded for it.
    """
    source, known = (
        template_digests.digest(manifest),
        {proofs.identity(template_digests.template_of(manifest.body))},
    )
    if git is not None:
        known |= git.identities
    if history.target is not None and history.target.source == source:
        known.add(history.target.template)
    return next(
        (
            revision
            for revision in live.targets.get(manifest.key, ())
            if target_revisions.source_of(revision) == source
            and proofs.identity(revision.template) in known
        ),
        None,
    )
