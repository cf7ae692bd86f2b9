"""The halted rollouts of an applied commit, and the templates that a revert must not take back.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gitops_ds.core.live import Live
from gitops_ds.core.objects import CommitId, Digest, Key
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.halted_rollout import HaltedRollout
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.rollouts.causes import template_digests, template_files
from gitops_ds.rollouts.staging import git_template, staging
from gitops_ds.rollouts.state import target_revisions


def halted(
    bundle: Bundle, live: Live, histories: Mapping[Key, TemplateHistory]
) -> Iterator[HaltedRollout]:
    """The halted rollouts of templates that the bundle has, and that the deployer recorded as the
    target with their commits.

    A template from an object of the cluster has no commit, and a halted rollout of it is not
    listed.
    """
    for manifest in staging.with_policy(bundle):
        history = histories.get(manifest.key, TemplateHistory())
        target, recorded = git_template.known_target(manifest, live, history), history.target
        halt = target_revisions.record_in(target).halt if target else None
        if target is None or recorded is None or halt is None or manifest.holder is not None:
            continue
        if recorded.source != template_digests.digest(manifest):
            continue
        old = live.objects.get(manifest.key) or {}
        policy = rollout_policy.decode(bundle.rollouts[manifest.agent])
        yield HaltedRollout(
            daemonset=manifest.key,
            uid=str((old.get("metadata") or {}).get("uid") or ""),
            commit=CommitId(recorded.commit),
            since=recorded.since,
            template=Digest(template_digests.digest(manifest)),
            files=template_files.deciding(manifest, bundle),
            own=template_files.own(manifest),
            commits=tuple(map(CommitId, recorded.commits)),
            halt=halt,
            revert=policy.on_failure.revert,
            cluster=bundle.cluster.name,
        )


def proven(
    states: Mapping[Key, TemplateHistory], histories: Mapping[Key, TemplateHistory]
) -> Mapping[Key, str]:
    """The digests in Git of the templates in force: the proven ones, and without a rollout policy
    the applied ones. `histories` are newer than `states`.
    """
    known = ((key, one.proof or one.applied) for key, one in {**states, **histories}.items())
    return {key: one.source for key, one in known if one is not None and one.source}
