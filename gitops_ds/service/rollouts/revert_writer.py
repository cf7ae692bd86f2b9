"""Writes reverts to Git after halted rollouts: a revert commit on the followed branch, or a pull
request with it.

`rollouts.reverts.revert_plan` decides what is reverted. The revert is rendered before the push:
it must restore the template before, and is only proposed if it changes more than it should. A
failed attempt is repeated with back-off; the rollout stays halted meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from gitops_ds import __version__
from gitops_ds.core import errors
from gitops_ds.core.events import rollouts
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.rate_limits import Backoff
from gitops_ds.core.rollouts.halted_rollout import HaltedRollout, RolloutIdentity
from gitops_ds.core.rollouts.template_cause import RenderedCommit
from gitops_ds.core.values import replace
from gitops_ds.deploy.cause_finder import CauseFinder
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.forges.client import Forge
from gitops_ds.forges.contract import NewPullRequest
from gitops_ds.forges.forge_access import ForgeAccess
from gitops_ds.rollouts.causes import template_causes
from gitops_ds.rollouts.causes.template_causes import BranchLine, Rendered, WantedCause
from gitops_ds.rollouts.reverts import revert_message, revert_plan
from gitops_ds.rollouts.reverts.revert_plan import RevertPlan
from gitops_ds.service.git import forge_discovery, git_auth, git_source
from gitops_ds.service.rollouts.repository_context import RepositoryContext
from gitops_ds.service.runnable import TimedAttempts
from gitops_ds.source.git.commit_writer import CommitReason, Signature
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.revision import Branch

PATIENCE = 60.0  # seconds for the forge
BACKOFF = Backoff(15.0, 900.0, jitter=0.1)


class _Attempts(msgspec.Struct, frozen=True):
    """The failed attempts of one revert: their number, the time of the next one, the last
    message.
    """

    count: int = 0
    retry_at: float = 0.0
    message: str = ""


class NotNow(Exception):
    """The present branch needs no revert."""


class _ForAPerson(errors.Refused):
    """The revert changes more than the template: only a person may decide for it."""


class BuiltRevert(msgspec.Struct, frozen=True):
    """A revert commit, unpushed: why a person must decide, empty if it may be pushed, and what it
    takes back.
    """

    commit: CommitId
    concern: str
    taken_back: str


class RevertWriter(TimedAttempts[HaltedRollout]):
    """Writes the reverts of one repository while `run` runs."""

    def __init__(
        self,
        context: RepositoryContext[Repository],
        prepared: Callable[[CommitId], Awaitable[Prepared]],
        causes: CauseFinder,
        pushed: Callable[[CommitId], None],
    ) -> None:
        """`prepared` renders and checks a commit; `causes` renders commits too; `pushed` is called
        with each pushed commit.
        """
        super().__init__(context.clock)
        self._context, self._prepared = context, prepared
        self._finder, self._report_push = causes, pushed
        self._written: set[RolloutIdentity] = set()
        self._attempts: dict[RolloutIdentity, _Attempts] = {}
        self._pushed: set[RolloutIdentity] = set()  # branches of pull requests

    def _pending(self) -> list[tuple[HaltedRollout, float]]:
        """The reverts to write, each with the time of its next attempt."""
        stopped = self._context.stopped_rollouts()
        halted = stopped.halted if stopped else ()
        current = {rollout.identity for rollout in halted}
        self._attempts = {
            one: attempts for one, attempts in self._attempts.items() if one in current
        }
        return [
            (rollout, max(rollout.due, self._attempts.get(rollout.identity, _Attempts()).retry_at))
            for rollout in halted
            if rollout.revert.how != "none" and rollout.identity not in self._written
        ]

    async def _attempt(self, halted: HaltedRollout) -> None:
        """One attempt. A failure is published once for the same message."""
        context, before = self._context, self._attempts.get(halted.identity, _Attempts())
        message = ""
        try:
            context.emit(await self._write(halted))
            self._written.add(halted.identity)
            return
        except NotNow:
            pass
        except errors.GitopsError as error:
            message = str(error)
        delay = BACKOFF.delay(before.count + 1, context.chance())
        now = context.clock()
        self._attempts[halted.identity] = _Attempts(before.count + 1, now + delay, message)
        if message and message != before.message:
            branch = context.settings.branch
            command = revert_message.command(halted, branch)
            context.emit(
                rollouts.RevertFailed(
                    now, halted.daemonset, halted.uid, halted.commit, message, delay, command
                )
            )

    async def _write(self, halted: HaltedRollout) -> rollouts.GitStepEvent:
        """Pushes the revert. Raises GitopsError, and NotNow if no revert is needed."""
        context = self._context
        if not context.settings.push:
            raise errors.Refused(
                "the service may not push: set repository.push, with credentials that have write "
                "access"
            )
        branch = await self._branch()
        if halted.revert.how == "commit":
            try:
                return await self._push(halted, branch)
            except (errors.SourceDenied, _ForAPerson):
                if context.settings.forge is None:
                    raise
        return await self._propose(halted, branch)

    async def _push(self, halted: HaltedRollout, branch: str) -> rollouts.RevertCommitted:
        """Pushes the revert to the branch. Raises _ForAPerson if it must not be pushed by itself,
        and GitopsError.
        """
        built: list[BuiltRevert] = []

        async def build(tip: CommitId) -> CommitId:
            built.append(await self.build(halted, tip))
            if built[-1].concern:
                raise _ForAPerson(
                    f"the revert needs a decision: {built[-1].concern}. Revert manually, or set "
                    "repository.forge for a pull request"
                )
            return built[-1].commit

        context = self._context
        commit = await context.repository.push_with_retry(build, branch)
        self._report_push(commit)
        about = (context.clock(), halted.daemonset, halted.uid, halted.commit)
        return rollouts.RevertCommitted(*about, commit, branch, built[-1].taken_back)

    async def _propose(self, halted: HaltedRollout, target: str) -> rollouts.RevertProposed:
        """Opens the pull request. A branch with the same changes was pushed for it before: by this
        process, whose pull request the forge refused, or by another one, which opened it.
        """
        context, repository = self._context, self._context.repository
        forge = self._forge()
        tip = await repository.tip(Branch(target))
        await repository.fetch(tip)
        built = await self.build(halted, tip)
        commit = built.commit
        branch = f"gitops-ds/revert-{short(halted.commit)}-{halted.daemonset.name}"
        about = (context.clock(), halted.daemonset, halted.uid, halted.commit)
        effect = ". ".join(filter(None, (built.taken_back, built.concern)))
        try:
            await repository.push(commit, branch, None)
        except errors.PushRejected:
            await self._require_same(commit, tip, branch)
            if halted.identity not in self._pushed:
                return rollouts.RevertProposed(*about, branch, "", effect)
        self._pushed.add(halted.identity)
        info = await repository.info(commit)
        text = revert_message.quoted(f"{revert_message.reason(halted)}\n\n{effect}")
        async with Forge(forge, PATIENCE, f"gitops-ds/{__version__}") as there:
            url = await there.open(NewPullRequest(branch, target, info.subject, text))
        return rollouts.RevertProposed(*about, branch, url, effect)

    async def _require_same(self, commit: CommitId, tip: CommitId, branch: str) -> None:
        """Raises Refused if the existing branch has other changes than the revert: it may be of
        another writer.
        """
        repository = self._context.repository
        there = await repository.tip(Branch(branch))
        await repository.fetch(there)
        base = await repository.merge_base(tip, there)
        same = base is not None and await self._results(base, there) == await self._results(
            tip, commit
        )
        if not same:
            raise errors.Refused(
                f"branch {branch} exists with other changes than the revert: delete it, and the "
                "revert is proposed"
            )

    async def _results(self, base: CommitId, until: CommitId) -> dict[str, str]:
        """The content of every file that the commits after `base` change."""
        commits = await self._context.repository.branch_commits(base, until)
        return {
            name: change.after
            for commit in reversed(commits)
            for name, change in commit.changes.items()
        }

    async def build(self, halted: HaltedRollout, tip: CommitId) -> BuiltRevert:
        """The revert on the tip, unpushed. Raises GitopsError, and NotNow if none is needed."""
        repository, stopped = self._context.repository, self._context.stopped_rollouts()
        if stopped is None or halted.identity not in {
            rollout.identity for rollout in stopped.halted
        }:
            raise NotNow
        await repository.fetch(halted.commit)
        halted = await self._with_commits(halted, tip)
        oldest = halted.commits[-1]
        line = await self._line(await self._parent(oldest), tip)
        rendered = await self._finder.rendered(revert_plan.to_render(halted, line, tip))
        if not line.commits:
            raise errors.Refused(f"commit {short(oldest)} is not on the branch")
        obstacle = revert_plan.obstacle(halted, line, rendered)
        if obstacle is not None:
            raise NotNow if obstacle.settled else errors.Refused(obstacle.reason)
        commit, plan, reverted = await self._tried(halted, line, rendered)
        effect = revert_plan.effect(
            halted, plan, line, {**rendered, revert_plan.REVERT: reverted}, stopped.proven
        )
        await self._verify(commit)
        return BuiltRevert(
            commit, effect.concern, revert_message.taken_back(halted, plan, line, effect)
        )

    async def _with_commits(self, halted: HaltedRollout, tip: CommitId) -> HaltedRollout:
        """The rollout with the commits that gave the template, of which the record may know too
        little. Raises Refused if they can't be found.
        """
        if halted.commits:
            return halted
        since = CommitId(halted.since) or await self._parent(halted.commit)
        wanted = {halted.daemonset: WantedCause(halted.template, halted.files)}
        found = await self._finder.find(since, tip, wanted)
        cause = found.get(halted.daemonset)
        if cause is None:
            raise errors.Refused(
                f"no commit after {short(since)} is known to give the halted template"
            )
        if not cause.exact:
            some = ", ".join(map(short, cause.commits))
            raise errors.Refused(f"one of these commits gave the halted template: {some}")
        return replace(halted, commits=tuple(map(CommitId, cause.commits)))

    async def _line(self, since: CommitId, tip: CommitId) -> BranchLine:
        most = template_causes.MOST_COMMITS
        commits = await self._context.repository.line(since, tip, most + 1)
        if len(commits) > most:
            raise errors.Refused(f"the branch has more than {most} commits since {short(since)}")
        return BranchLine(since, commits, self._context.settings.path)

    async def _tried(
        self, halted: HaltedRollout, line: BranchLine, rendered: Rendered
    ) -> tuple[CommitId, RevertPlan, RenderedCommit]:
        """The smallest revert that restores the template before, rendered. Raises Refused without
        one.
        """
        repository, tip = self._context.repository, line.commits[0].info.id
        goal, plans = (
            revert_plan.goal(halted, line, rendered),
            revert_plan.plans(halted, line),
        )
        failure = errors.Refused("the commits of the halted template change no file")
        for plan in plans:
            why = CommitReason(
                revert_message.reason(halted),
                self._signature(halted),
                revert_plan.trailers(halted, plan),
            )
            try:
                commit = await repository.revert(tip, {o.commit: o.files for o in plan}, why)
            except errors.Refused as error:
                failure = error
                continue
            reverted = (await self._finder.rendered((commit,))).get(commit)
            template = reverted.templates.get(halted.daemonset) if reverted is not None else None
            if reverted is not None and template is not None and template != halted.template:
                if template == goal or plan is plans[-1]:
                    return commit, plan, reverted
            elif reverted is None:
                failure = errors.Refused("the reverted files have an error")
            elif template is None:
                failure = errors.Refused(f"the revert would delete {halted.daemonset}")
            else:
                failure = errors.Refused(
                    f"the revert of commit {short(halted.commit)} keeps the halted template"
                )
        raise failure

    async def _parent(self, commit: CommitId) -> CommitId:
        parents = (await self._context.repository.info(commit)).parents
        if not parents:
            raise errors.Refused(f"commit {short(commit)} is the first one: nothing to go back to")
        return parents[0]

    async def _verify(self, commit: CommitId) -> None:
        """Raises Refused if the commit has errors."""
        prepared = await self._prepared(commit)
        refused = next((finding for finding in prepared.findings if finding.refused), None)
        if refused is not None:
            raise errors.Refused(f"the reverted files have an error: {refused.message}")

    async def _branch(self) -> str:
        """The followed branch. Raises Refused if a tag or a commit is followed."""
        settings = self._context.settings
        branch = await git_source.branch_of(self._context.repository, settings)
        if not branch and settings.ref:
            raise errors.Refused(f"a revert needs a branch: {settings.ref} is another ref")
        if not branch:
            raise errors.Refused("a revert needs a branch: the service follows a tag or a commit")
        return branch

    def _signature(self, halted: HaltedRollout) -> Signature:
        """The author, and the time at which the revert was due: so every replica creates the same
        commit.
        """
        return git_auth.commit_signature(self._context.settings, halted.due)

    def _forge(self) -> ForgeAccess:
        """Raises Refused without a forge, and SettingsError for an invalid one."""
        settings = self._context.settings.forge
        if settings is None:
            raise errors.Refused("a pull request needs repository.forge")
        return forge_discovery.access_of(self._context.repository.address, settings)
