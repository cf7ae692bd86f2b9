"""Whether the tip of the branch may continue to this cluster, by the reports of the clusters
before.

`rollouts.waves.cluster_waves` decides; the gate reads the reports and publishes a wait: once for
each commit and cluster that it waits for, and again each time that it is overdue. A tip that only
restores an earlier content of the cluster doesn't wait: `git.branch_history` compares the files
with those of the commits of the DaemonSets' revisions, which this cluster had before, and
`EarlierContent` the rendered manifests.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.base import Emit
from gitops_ds.core.events.commits import CommitOverdue, CommitWaits
from gitops_ds.core.objects import CommitId, Digest, Key
from gitops_ds.core.rollouts.cluster_report import ClusterOrder
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.rollouts.waves import cluster_waves
from gitops_ds.rollouts.waves.cluster_waves import ClusterReports, WaveHold
from gitops_ds.source.git.object_reader import BranchMovement

# The earlier commit with the files of a tip: after `since`, among some commits.
FindEarlier = Callable[[CommitId, CommitId, Collection[CommitId]], Awaitable[CommitId | None]]


async def none_earlier(
    since: CommitId, tip: CommitId, among: Collection[CommitId]
) -> CommitId | None:
    """For a source that can't compare commits: no commit is earlier."""
    return None


class _Comparison(msgspec.Struct, frozen=True):
    """The result for a tip, and its inputs."""

    tip: CommitId
    since: CommitId
    among: frozenset[CommitId]
    is_earlier: bool


class EarlierContent:
    """Compares the tips of one repository; `prepared` renders a commit."""

    def __init__(
        self, find: FindEarlier, prepared: Callable[[CommitId], Awaitable[Prepared]]
    ) -> None:
        self._find, self._prepared = find, prepared
        self._last: _Comparison | None = None

    async def has(self, tip: CommitId, state: DeployerState) -> bool:
        """Whether the tip is a revert, by its content; False if a commit can't be rendered.

        Raises SourceUnreachable.
        """
        if state.last_good is None:
            return False
        among = frozenset(
            commit
            for kept in (state.commits, state.revisions)
            for commits in kept.values()
            for commit in commits.values()
        )
        last = self._last
        if last is None or (last.tip, last.since, last.among) != (tip, state.last_good, among):
            is_earlier = False
            try:
                is_earlier = await self._compare(tip, state.last_good, among)
            except errors.SourceUnreachable:
                raise
            except errors.SourceError:
                pass
            last = self._last = _Comparison(tip, state.last_good, among, is_earlier)
        return last.is_earlier

    async def _compare(self, tip: CommitId, since: CommitId, among: Collection[CommitId]) -> bool:
        earlier = await self._find(since, tip, among)
        if earlier is None:
            return False
        sides = [await self._prepared(commit) for commit in dict.fromkeys((tip, since, earlier))]
        if not all(side.deployable for side in sides):
            return False
        return _has_only(sides[0].bundle, sides[1].bundle, sides[-1].bundle)


def _has_only(tip: Bundle, applied: Bundle, earlier: Bundle) -> bool:
    """Whether every agent of the tip has all of its manifests, and its rollout policy, as in the
    applied commit or as in the earlier one.
    """
    now, before, earlier_ones = map(_by_agent, (tip, applied, earlier))
    return all(
        (now.get(agent, {}), tip.rollouts.get(agent))
        in (
            (before.get(agent, {}), applied.rollouts.get(agent)),
            (earlier_ones.get(agent, {}), earlier.rollouts.get(agent)),
        )
        for agent in now.keys() | before.keys()
    )


def _by_agent(bundle: Bundle) -> Mapping[str, Mapping[Key, Digest]]:
    """The manifests of each agent."""
    agents: defaultdict[str, dict[Key, Digest]] = defaultdict(dict)
    for manifest in bundle.manifests.values():
        agents[manifest.agent][manifest.key] = manifest.digest
    return agents


async def no_reports(order: ClusterOrder) -> ClusterReports:
    """The reports of a source without any: every cluster before is unknown."""
    return ClusterReports({}, {})


class WaveSource(msgspec.Struct, frozen=True):
    """The reports of the clusters of an order, and the earlier commit whose files a tip
    restores.
    """

    reports: Callable[[ClusterOrder], Awaitable[ClusterReports]] = no_reports
    earlier: FindEarlier = none_earlier


NO_WAVES = WaveSource()


class WaitingCommit(msgspec.Struct, frozen=True):
    """A tip that waits: the place of the cluster, the reason, and the commit that is applied
    instead.
    """

    order: ClusterOrder
    hold: WaveHold
    instead: CommitId | None = None


Movement = Callable[[CommitId, CommitId], Awaitable[BranchMovement]]


class WaveContext(msgspec.Struct, frozen=True):
    """The dependencies of a gate; `prepared` renders a commit."""

    source: WaveSource
    movement: Movement
    prepared: Callable[[CommitId], Awaitable[Prepared]]


class WaveGate:
    """The gate of one repository; `clock` returns seconds since 1970."""

    def __init__(self, context: WaveContext, emit: Emit, clock: Callable[[], float]) -> None:
        self._source, self._movement = context.source, context.movement
        self._earlier = EarlierContent(context.source.earlier, context.prepared)
        self._emit, self._clock = emit, clock
        self.forget()

    def forget(self) -> None:
        """Allows repeated events: another replica may have published in between."""
        self._published: tuple[CommitId, str, bool] | None = None
        # The start of the wait, and the last applied commit at that time.
        self._wait: tuple[float, CommitId | None] | None = None
        self._overdue = 0

    async def waiting(
        self, tip: CommitId, order: ClusterOrder, state: DeployerState
    ) -> WaitingCommit | None:
        """Why the tip waits, None if it may continue. A commit that was started here never waits,
        nor does one that only restores the content of an earlier one.

        Raises SourceError if the reports can't be read.
        """
        if not order.after or tip in (state.last_good, state.last_attempted):
            self.forget()
            return None
        reports = await self._source.reports(order)
        hold = cluster_waves.hold(order, reports, tip, self._clock())
        if hold is None or await self._earlier.has(tip, state):
            self.forget()
            return None
        instead = await self._newest_passed(tip, order, state, reports)
        self._publish(tip, order, hold, state)
        return WaitingCommit(order, hold, instead or state.last_good)

    async def _newest_passed(
        self, tip: CommitId, order: ClusterOrder, state: DeployerState, reports: ClusterReports
    ) -> CommitId | None:
        """The newest commit of the branch after the last attempted one that passed every cluster
        before.
        """
        for commit in cluster_waves.passed(order, reports):
            if await self._leads(state.last_attempted, commit) and await self._leads(commit, tip):
                return commit
        return None

    async def _leads(self, earlier: CommitId | None, later: CommitId) -> bool:
        if earlier is None or earlier == later:
            return True
        # A commit of another line of commits may not be in the local copy.
        with contextlib.suppress(errors.RevisionUnknown):
            return await self._movement(earlier, later) is BranchMovement.FORWARD
        return False

    def _publish(
        self, tip: CommitId, order: ClusterOrder, hold: WaveHold, state: DeployerState
    ) -> None:
        now = self._clock()
        mark = (tip, hold.cluster, hold.failed)
        if self._published != mark:
            self._published = mark
            self._emit(CommitWaits(now, tip, hold.text))
        # Progress of an earlier commit ends the wait: the branch advances behind its tip.
        if self._wait is None or self._wait[1] != state.last_good:
            self._wait, self._overdue = (now, state.last_good), 0
        waited = now - self._wait[0]
        if order.within and int(waited / order.within) > self._overdue:
            self._overdue = int(waited / order.within)
            self._emit(CommitOverdue(now, tip, hold.text, waited))
