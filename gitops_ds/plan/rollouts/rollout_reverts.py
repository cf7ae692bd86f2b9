"""The revert commit after a halted rollout: its content and its message.

A commit is reverted once: the message of its revert has it in a trailer, which every cluster and
every later start reads. A trailer counts only with the content of a revert. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

from gitops_ds.apimachinery import timestamps
from gitops_ds.model.objects import CommitId, short
from gitops_ds.model.plain_text import counted, line
from gitops_ds.model.rollouts.halted_rollout import BranchCommit, HaltedRollout
from gitops_ds.redaction import texts

TRAILER = "Gitops-Ds-Reverts"
SHOWN = 20  # nodes in a message
# [skip ci], ***NO_CI***, #12, GH-12, /issues/12, @team: a space follows, which ends the meaning
_OBEYED = re.compile(
    r"\[(?=(?:skip|no|ci|actions)\b)|\*\*\*(?=NO_CI)|#(?=\w)|\bGH-(?=\d)"
    r"|/(?:issues|work_items|pull|merge_requests)/(?=\d)|(?<!\w)@(?=\w)",
    re.IGNORECASE,
)
_TRAILER = re.compile(rf"^{TRAILER}: ([0-9a-f]{{40,64}})\s*$", re.MULTILINE)


class RevertCommits(msgspec.Struct, frozen=True):
    """Commits to revert with `git revert`, newest first."""

    commits: tuple[CommitId, ...]


class RestoreFiles(msgspec.Struct, frozen=True):
    """Files to restore from an older commit, because the commits have other changes too.

    `commits` are the reverted ones, newest first.
    """

    commits: tuple[CommitId, ...]
    to: CommitId
    files: tuple[str, ...]


class NoRevert(msgspec.Struct, frozen=True):
    """Why no revert is written. `settled`: nothing is left to do, otherwise a person must act."""

    reason: str
    settled: bool = False


class BranchHistory(msgspec.Struct, frozen=True):
    """The commits of the branch after `since`, newest first; `applied` is the one in the cluster.

    `path` is the followed folder of the repository.
    """

    since: CommitId
    commits: Sequence[BranchCommit]
    applied: CommitId
    path: str = ""


def choose(
    halted: HaltedRollout, history: BranchHistory
) -> RevertCommits | RestoreFiles | NoRevert:
    """The revert of the template of a halted rollout.

    None if a commit already reverted the template, or if a commit that is not applied yet changes
    the agent.
    """
    ids = [one.info.id for one in history.commits]
    if halted.commit not in ids:
        return NoRevert(
            f"commit {short(halted.commit)} is not among those after {short(history.since)}: the "
            "branch was rewritten"
        )
    unseen = history.commits[: ids.index(history.applied)] if history.applied in ids else ()
    if changing := next(_touching(unseen, halted, history.path), None):
        return NoRevert(f"commit {short(changing.info.id)} changes the agent", settled=True)
    span = history.commits[ids.index(halted.commit) :]
    brought = tuple(_touching(span, halted, history.path))
    if not brought and len(span) > 1:
        return NoRevert(f"no commit after {short(history.since)} changes a file of the agent")
    alone = not brought
    brought = brought or tuple(span)
    if taken := _taken_back_by(history, brought, halted):
        return NoRevert(f"commit {short(taken)} reverted it", settled=True)
    commits = tuple(one.info.id for one in brought)
    alone = alone or all(
        _is_own(name, halted, history.path) for one in brought for name in one.files
    )
    if alone and all(len(one.info.parents) == 1 for one in brought):
        return RevertCommits(commits)
    files = {name for one in brought for name in one.files if _is_own(name, halted, history.path)}
    later = history.commits[: ids.index(halted.commit)]
    if again := next((one for one in later if files & set(one.files)), None):
        return NoRevert(f"commit {short(again.info.id)} changed the same files since")
    return RestoreFiles(commits, history.since, tuple(sorted(files)))


def reverted(message: str) -> tuple[CommitId, ...]:
    """The commits that a commit message names as reverted by gitops-ds."""
    return tuple(CommitId(id) for id in _TRAILER.findall(message))


def trailers(halted: HaltedRollout, plan: RevertCommits | RestoreFiles) -> tuple[str, ...]:
    """The trailers of the commit message: every reverted commit."""
    commits = dict.fromkeys((*plan.commits, halted.commit))
    return tuple(f"{TRAILER}: {commit}" for commit in commits)


def reason(halted: HaltedRollout) -> str:
    """The evidence in the message of the revert: agent, cluster, stage, time, nodes and causes; for
    a gate the query, the value and its bound.
    """
    at = timestamps.text(halted.halt.at)
    where = f" on cluster {halted.cluster}" if halted.cluster else ""
    first = (
        f"The rollout of {halted.daemonset} was halted in stage {halted.halt.stage}{where} at "
        f"{at}: {halted.halt.message}"
    )
    return _inert(texts.words("\n".join((line(first, 1000), *_nodes(halted)))))


def quoted(text: str) -> str:
    """The text as a block of code in Markdown, without links, images and mentions."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def _inert(text: str) -> str:
    """The text without words that a forge or its CI obeys in a commit message: pods write messages.

    https://docs.github.com/actions/managing-workflow-runs/skipping-workflow-runs,
    https://docs.github.com/issues/tracking-your-work-with-issues/using-issues/linking-a-pull-request-to-an-issue,
    https://docs.gitlab.com/user/project/issues/managing_issues/#closing-issues-automatically
    """
    return _OBEYED.sub(r"\g<0> ", text)


def command(halted: HaltedRollout, branch: str) -> str:
    """The command for a manual revert of the commit."""
    return f"git revert {short(halted.commit)} && git push origin HEAD:{branch or 'BRANCH'}"


def _nodes(halted: HaltedRollout) -> Iterator[str]:
    nodes, gate = halted.halt.nodes, halted.halt.gate
    if nodes or gate is not None:
        yield ""
    yield from (line(f"- {fact}", 1000) for fact in (gate.lines if gate is not None else ()))
    for one in nodes[:SHOWN]:
        yield line(f"- {one.node}: {': '.join(filter(None, (one.reason, one.message)))}", 300)
    if len(nodes) > SHOWN:
        yield f"- and {counted(len(nodes) - SHOWN, 'other node')}"


def _taken_back_by(
    history: BranchHistory, brought: Sequence[BranchCommit], halted: HaltedRollout
) -> CommitId | None:
    """The newest commit that names one of those as reverted and restores the content of its files.
    The name is not sufficient: such a commit may revert nothing.
    """
    bad = {one.info.id for one in brought} | {halted.commit}
    named = [one for one in history.commits if bad.intersection(reverted(one.message))]
    own = {name for one in brought for name in one.files if _is_own(name, halted, history.path)}
    own = own or {name for one in brought for name in one.files}
    # In this order, newest first, the last commit before counts, and the first one after.
    before = {name: one.changes[name].before for one in brought for name in own & one.files}
    after = {name: one.changes[name].after for one in reversed(named) for name in own & one.files}
    return named[0].info.id if named and before.items() <= after.items() else None


def _touching(
    commits: Iterable[BranchCommit], halted: HaltedRollout, path: str
) -> Iterator[BranchCommit]:
    return (one for one in commits if any(_is_own(name, halted, path) for name in one.files))


def _is_own(name: str, halted: HaltedRollout, path: str) -> bool:
    """Whether a file of the repository belongs to the agent."""
    try:
        inner = PurePosixPath(name).relative_to(path)
    except ValueError:
        return False
    return any(str(one) in halted.files for one in (inner, *inner.parents))
