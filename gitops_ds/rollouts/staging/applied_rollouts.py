"""The rollouts of an applied commit that are halted or wait for an approval, and the commits that
approve a stage. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from gitops_ds.core.live import Live
from gitops_ds.core.objects import CommitId, Digest, Key, short
from gitops_ds.core.plain_text import line, listed
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.halted_rollout import HaltedRollout
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.core.rollouts.rollout_policy import RolloutPolicy, Stage
from gitops_ds.core.rollouts.staged_rollout import (
    TRAILER,
    Approver,
    RolloutRecord,
    StageApproval,
    WaitingStage,
)
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.core.sources.signatures import Verified
from gitops_ds.kube.apimachinery import daemonsets
from gitops_ds.rollouts.staging import git_template, staging
from gitops_ds.rollouts.state import proofs, rollout_annotations, target_revisions


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
        if recorded.source != git_template.digest(manifest):
            continue
        old = live.objects.get(manifest.key) or {}
        policy = rollout_policy.decode(bundle.rollouts[manifest.agent])
        yield HaltedRollout(
            daemonset=manifest.key,
            uid=str((old.get("metadata") or {}).get("uid") or ""),
            commit=CommitId(recorded.commit),
            since=recorded.since,
            template=Digest(git_template.digest(manifest)),
            files=deciding_files(manifest, bundle),
            own=own_files(manifest),
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


def own_files(manifest: Manifest) -> frozenset[str]:
    """The file of a manifest, and the folder of its agent."""
    base = manifest.origin.base.file
    return frozenset(filter(None, (base, _agent_folder(base))))


def deciding_files(manifest: Manifest, bundle: Bundle) -> frozenset[str]:
    """The files and directories whose change can change a manifest, also by the removal of a value
    that no file has any more: those of its agent, cluster and environment, and those that the
    renderers read. Files of another agent count only if the manifest has a value of that agent.
    """
    origin, base = manifest.origin, manifest.origin.base.file
    files = {base, *(pointer.file for pointers in origin.set_by.values() for pointer in pointers)}
    files |= own_files(manifest)
    places = {"gitops-ds.yaml", ".gitopsdsignore", f"agents/{manifest.agent}"}
    places |= {f"clusters/{bundle.cluster.name}.yaml"}
    places |= {f"environments/{bundle.cluster.environment}.yaml"}
    agents = places | {folder for file in files if (folder := _agent_folder(file))}
    # an archive of a chart has no files of its own
    rendered = base in bundle.consumed or PurePosixPath(base).name == "source.yaml"
    for file in bundle.consumed if rendered else ():
        folder = _agent_folder(file)
        if folder is None or folder in agents:
            places |= {file, folder or PurePosixPath(file).parent.as_posix()}
    return frozenset(files | places)


def _agent_folder(file: str) -> str | None:
    parts = PurePosixPath(file).parts
    return f"agents/{parts[1]}" if len(parts) > 2 and parts[0] == "agents" else None


NAMED = 3  # commits in a message
LONGEST = 63  # characters of a stage in a message
SHORTEST = 12  # digits of a commit in a trailer
_COMMIT = re.compile(rf"[0-9a-fA-F]{{{SHORTEST},64}}")
_SSH = "SHA256:"  # the start of the fingerprint of an ssh key


def waiting(
    bundle: Bundle, live: Live, histories: Mapping[Key, TemplateHistory]
) -> Iterator[WaitingStage]:
    """The current stages that need an approval, one of each rollout that is not halted.

    The commits are those that the deployer recorded: others may write them on the target revision.
    """
    for manifest in staging.with_policy(bundle):
        old = live.objects.get(manifest.key)
        if old is None or manifest.holder is not None:
            continue
        known = live.targets.get(manifest.key, ())
        target = target_revisions.target_of(daemonsets.daemonset_of(old), known)
        if target is None or not target.staged:
            continue
        revision = next(own for own in known if own.uid == target.uid)
        recorded = histories.get(manifest.key, TemplateHistory()).target
        if recorded is None or proofs.identity(revision.template) != recorded.template:
            continue
        policy = rollout_policy.decode(bundle.rollouts[manifest.agent])
        stage = _current(policy, target_revisions.record_in(revision))
        if stage is None or stage.approval is None:
            continue
        approvals = rollout_annotations.approvals_text(revision)
        yield WaitingStage(
            daemonset=manifest.key,
            owner=str(old["metadata"].get("uid") or ""),
            revision=target.revision,
            uid=target.uid,
            hash=target.hash,
            commit=CommitId(recorded.commit),
            since=recorded.since,
            stage=stage.name,
            approvers=stage.approval.from_,
            files=deciding_files(manifest, bundle),
            annotation=approvals or "",
            is_forged=approvals == "",
            stages=tuple(planned.name for planned in policy.stages),
        )


def _current(policy: RolloutPolicy, record: RolloutRecord) -> Stage | None:
    """The first stage that is not passed; None for a halted rollout."""
    if record.halt is not None:
        return None
    return next((stage for stage in policy.stages if stage.name not in record.passed), None)


def approvers_of(stage: WaitingStage, approvers: Mapping[str, Approver]) -> tuple[Approver, ...]:
    """The approvers of a stage among those of the settings."""
    return tuple(approvers[name] for name in stage.approvers if name in approvers)


def trailer_flaw(value: str, commit: CommitId, stage: WaitingStage) -> str | None:
    """Why the value of a trailer of `commit` does not approve the stage of exactly this rollout;
    empty if it does, None if it is for another stage or DaemonSet.

    `NAMESPACE/DAEMONSET/STAGE COMMIT` names the commit of the rollout by at least 12 digits;
    without COMMIT the value approves the rollout of the commit that has the trailer.
    """
    path, _, named = (part.strip() for part in value.strip().partition(" "))
    if not stage.commit:
        return None
    if path != stage.path:
        return _path_flaw(path, stage)
    if not named:
        return "" if commit == stage.commit else "its trailer names no commit"
    if not _COMMIT.fullmatch(named):
        return f"its trailer names no commit ID of at least {SHORTEST} digits"
    is_same = stage.commit.startswith(named.lower())
    return "" if is_same else f"its trailer names commit {short(named.lower())}"


def _path_flaw(path: str, stage: WaitingStage) -> str | None:
    """Why the path of a trailer names no stage of the rollout; None if it names another stage, or
    another DaemonSet.
    """
    daemonset, _, name = path.rpartition("/")
    own = f"{stage.daemonset.namespace}/{stage.daemonset.name}"
    if daemonset == stage.daemonset.name and daemonset != path:
        return (
            "its trailer names no namespace"
            if name == stage.stage or name not in stage.stages
            else None
        )
    known = f"the stages are {', '.join(stage.stages)}"
    if path == own:
        return f"its trailer names no stage; {known}"
    if daemonset == own and name not in stage.stages:
        return f'its trailer names stage "{line(name, LONGEST)}"; {known}'
    return None


def ignored_approvals(flaws: Mapping[CommitId, str], stage: WaitingStage) -> str:
    """The message about commits that do not count, with the trailer that does; empty for none."""
    if not flaws:
        return ""
    commits = (f"commit {short(commit)} does not count ({flaw})" for commit, flaw in flaws.items())
    trailer = f"`{TRAILER}: {stage.path} {short(stage.commit)}`"
    by = ", ".join(stage.approvers)
    return f"{listed(commits, NAMED)}: it needs a commit with {trailer} that {by} signed"


def by_key(approvers: Iterable[Approver], signed: Verified) -> Approver | None:
    """The approver who has the key of a signature.

    A principal counts for ssh keys only: it is from the file of allowed signers. The user id of an
    OpenPGP key is the choice of its owner.
    """
    keys = {signed.key} | ({signed.signer} if signed.key.startswith(_SSH) else set())
    return next((approver for approver in approvers if approver.keys & (keys - {""})), None)


def approval(stage: WaitingStage, approver: Approver, by: str, how: str) -> StageApproval:
    """The approval of a stage, for this target only."""
    return StageApproval(stage.stage, stage.hash, approver.name, by, how)


def present(stage: WaitingStage) -> tuple[StageApproval, ...]:
    """The approvals of the stage in the annotation."""
    approvals = rollout_annotations.decoded_approvals(stage.annotation)
    return tuple(
        known for known in approvals if (known.stage, known.hash) == (stage.stage, stage.hash)
    )


def annotation(stage: WaitingStage, new: StageApproval | None) -> str:
    """The annotation with this approval of the stage, or without one; other stages keep theirs."""
    approvals = rollout_annotations.decoded_approvals(stage.annotation)
    kept = [known for known in approvals if known.stage != stage.stage and known.hash == stage.hash]
    return rollout_annotations.encoded_approvals([*kept, *([new] if new else [])])
