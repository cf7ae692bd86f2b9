"""The commits of templates by content, for the state: which commit gave a ControllerRevision its
template. Pure.

A template that no apply wrote has none, such as one of `kubectl set image`: the DaemonSet
controller copies the annotations of the DaemonSet to its revision, and its number may be that of
another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from gitops_ds.core.change import Operation
from gitops_ds.core.live import Live
from gitops_ds.core.objects import Body, CommitId, Key
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.core.rollouts.template_cause import TemplateCause
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.deploy.apply.applier import AppliedObject, ApplyOutcome
from gitops_ds.deploy.apply.plan_draft import PlanDraft
from gitops_ds.ownership import object_owner
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.rollouts.staging import git_template
from gitops_ds.rollouts.state import proofs

MOST = 30  # templates of one DaemonSet, beside those of its revisions

Commits = Mapping[str, CommitId]


def after(draft: PlanDraft, outcome: ApplyOutcome, gone: Set[Key]) -> Mapping[Key, Commits]:
    """The commit of each known template, by the identity of the template. If a DaemonSet has too
    many, those of deleted revisions are forgotten.
    """
    live, before = draft.inputs.live, _before(draft)
    found = {key: dict(commits) for key, commits in before.items() if key not in gone}
    written = {done.change.key: done for done in outcome.written}
    for change in draft.plan.changes:
        key, manifest = change.key, change.manifest
        if not key.is_daemonset or manifest is None or change.operation is Operation.DELETE:
            continue
        commits = found.get(key, {})
        if len(commits) > MOST:
            kept = _identities(live, key)
            commits = {one: commit for one, commit in commits.items() if one in kept}
        if manifest.agent in draft.bundle.rollouts:
            history = draft.histories.get(key, TemplateHistory())
            cause = draft.inputs.context.stamp.causes.get(key)
            commits = {**_recorded(history), **commits, **_in_git(history, cause)}
        else:
            commit = object_owner.stamp_of(manifest, draft.inputs.context.stamp).commit
            done = written.get(key)
            # the identities of two templates take a third of a millisecond
            is_known = commit in commits.values() and done is None and _is_compared(draft, key)
            if commit and not is_known and (template := _given(live, manifest, done)) is not None:
                commits |= {proofs.identity(template): CommitId(commit)}
        if commits or key in found:
            found[key] = commits
    return found


def _is_compared(draft: PlanDraft, key: Key) -> bool:
    """Whether the last reconciliation compared the DaemonSet as it is with Git."""
    compared, live = draft.state.generations.get(key), draft.inputs.live.objects.get(key)
    if compared is None or live is None:
        return False
    return bool(live["metadata"].get("generation") == compared.generation)


def _before(draft: PlanDraft) -> Mapping[Key, Commits]:
    """The known ones; those of a version that recorded them by the numbers of revisions."""
    state, live = draft.state, draft.inputs.live
    numbered = {
        key: {
            proofs.identity(revision.template): commits[revision.number]
            for revision in live.revisions.get(key, ())
            if revision.number in commits
        }
        for key, commits in state.revisions.items()
    }
    return {**numbered, **state.commits}


def _identities(live: Live, key: Key) -> Set[str]:
    every = (*live.revisions.get(key, ()), *live.targets.get(key, ()))
    return {proofs.identity(record.template) for record in every}


def _recorded(history: TemplateHistory) -> Commits:
    """The proven template, and the one that rolls out, by the commits of their records."""
    every = (history.proof, history.target)
    return {
        record.template: CommitId(record.commit)
        for record in every
        if record is not None and record.commit
    }


def _in_git(history: TemplateHistory, cause: TemplateCause | None) -> Commits:
    """Those of them that Git has now, by the commit that gave it: it may be a later one, such as a
    revert, than the one that was proven.
    """
    every = (history.proof, history.target)
    return {
        record.template: CommitId(cause.commit)
        for record in every
        if record is not None and cause is not None and record.source == cause.source
    }


def _given(live: Live, manifest: Manifest, done: AppliedObject | None) -> Body | None:
    """The template that an apply gave the DaemonSet: the written one, or that of Git which it has
    already; None for an edit of others.
    """
    old = live.objects.get(manifest.key)
    body = old if done is None else done.body
    if body is None:
        return None
    template: Body = template_digests.template_of(body)
    before = template_digests.template_of(old) if old is not None else {}
    is_new = done is not None and proofs.identity(template) != proofs.identity(before)
    return template if is_new or git_template.is_of_git(body, manifest) else None
