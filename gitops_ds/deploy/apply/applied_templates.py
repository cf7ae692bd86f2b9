"""The templates of DaemonSets by the answers of the API server to our writes, for the state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gitops_ds.core import errors
from gitops_ds.core.change import Operation
from gitops_ds.core.objects import Body, Key
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.core.values import replace
from gitops_ds.deploy.apply import plan_draft
from gitops_ds.deploy.apply.applier import AppliedObject
from gitops_ds.deploy.apply.plan_draft import PlanDraft
from gitops_ds.ownership.options import DryRunResult
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.rollouts.staging import git_template, template_history


async def of(draft: PlanDraft, written: Iterable[AppliedObject]) -> Mapping[Key, TemplateHistory]:
    """The histories of the DaemonSets among the written objects, as far as an answer adds to them.

    Raises ClusterError.
    """
    found = {}
    for done in written:
        key, manifest, body = done.change.key, done.change.manifest, done.body
        if not key.is_daemonset or manifest is None or body is None:
            continue
        staged = draft.histories.get(key)
        if staged is None:
            found[key] = await _unstaged(draft, manifest, body, is_created=done.created)
        elif done.created:
            found[key] = template_history.created(staged, body)
    return found


def unchanged(draft: PlanDraft) -> Mapping[Key, TemplateHistory]:
    """The histories of DaemonSets without a policy and without a record that have exactly the
    template in Git: an earlier version applied them.
    """
    found = {}
    for change in draft.plan.changes:
        key, manifest, body = (
            change.key,
            change.manifest,
            draft.inputs.live.objects.get(change.key),
        )
        before = draft.state.templates.get(key, TemplateHistory())
        if change.operation is not Operation.KEEP or not key.is_daemonset:
            continue
        if manifest is None or body is None or key in draft.histories or before.applied:
            continue
        if before.proof is None and git_template.is_of_git(body, manifest):
            found[key] = _recorded(draft, manifest, body, DryRunResult(body))
    return found


async def _unstaged(
    draft: PlanDraft, manifest: Manifest, body: Body, *, is_created: bool
) -> TemplateHistory:
    """The history of a DaemonSet without a policy after its write. The answer to an update contains
    fields of other writers too: then a dry run shows what admission makes of the template in Git.
    """
    if is_created or git_template.is_of_git(body, manifest):
        return _recorded(draft, manifest, body, DryRunResult(body, created=body))
    before = draft.state.templates.get(manifest.key, TemplateHistory())
    known = template_history.without_policy(before)
    if known.applied is not None and known.applied.source == template_digests.digest(manifest):
        return replace(known, uid=_uid(body))
    try:
        created = await plan_draft.creation(draft.inputs, manifest)
    except errors.ServerFault:
        created = None
    if created is None:
        return replace(known, uid=_uid(body), applied=None)
    return _recorded(draft, manifest, body, DryRunResult(created=created))


def _recorded(
    draft: PlanDraft, manifest: Manifest, body: Body, answer: DryRunResult
) -> TemplateHistory:
    git = git_template.read(manifest, answer, draft.inputs.context)
    before = draft.state.templates.get(manifest.key, TemplateHistory())
    return template_history.recorded(before, git, _uid(body))


def _uid(body: Body) -> str:
    return str(body["metadata"].get("uid") or "")
