"""The approval of a stage: by the trailer of a signed commit or by a review, and its annotation.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.plain_text import line, listed
from gitops_ds.core.rollouts.staged_rollout import TRAILER, Approver, StageApproval, WaitingStage
from gitops_ds.core.sources.signatures import Verified
from gitops_ds.rollouts.state import rollout_annotations

NAMED = 3  # commits in a message
LONGEST = 63  # characters of a stage in a message
SHORTEST = 12  # digits of a commit in a trailer
_COMMIT = re.compile(rf"[0-9a-fA-F]{{{SHORTEST},64}}")
_SSH = "SHA256:"  # the start of the fingerprint of an ssh key


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
