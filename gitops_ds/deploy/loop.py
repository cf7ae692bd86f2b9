"""The deployer's loop: reconciles one repository with one cluster whenever something requests it.

The schedule, a webhook and a request call `request`, a watch that saw a change `request_soon`,
which does not read Git. An unchanged commit on an unchanged cluster costs one `git ls-remote`.
While Git does not respond, the known commit is kept applied; before its first response, the last
applied one. A standby only prefetches.

`loop_state` has the diagram and decides the schedule; `reconciler` does the work; the task here
connects them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.base import Emit
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.rollouts.cluster_report import ClusterOrder
from gitops_ds.core.rollouts.halted_rollout import AppliedRollouts
from gitops_ds.core.sources.bundle import Bundle, ClusterFacts, Manifest, Pool
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.deploy import loop_inputs, loop_state
from gitops_ds.deploy.loop_inputs import (
    CancelReconciliation,
    ForgetDeployerState,
    ForgetReports,
    LoopEffect,
    Publish,
)
from gitops_ds.deploy.loop_state import LoopPhase
from gitops_ds.deploy.object_claims import Claims, Rank
from gitops_ds.deploy.reconcile_schedule import LoopTiming, ReconcileSchedule
from gitops_ds.deploy.reconciler import Reconciler
from gitops_ds.deploy.reports import LeaderEmitter
from gitops_ds.deploy.revision_selector import RevisionSource
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.kube.client.supervisor import ended
from gitops_ds.ownership.options import ApplyOptions

__all__ = ["Loop", "LoopTiming"]


class Loop:
    """One repository on one cluster."""

    def __init__(
        self,
        source: RevisionSource,
        target: DeployTarget,
        options: ApplyOptions,
        emit: Emit,
        timing: LoopTiming,
    ) -> None:
        """Nothing runs until `run`."""
        state = loop_state.initial(timing.retry, options.compare_every)
        self._schedule = ReconcileSchedule(state, timing, self._perform)
        self._emit = LeaderEmitter(emit, lambda: self._schedule.state.leading)
        self._reconciler = Reconciler(source, target, options, self._schedule, self._emit)
        self._running: asyncio.Task[None] | None = None
        self.first_reconciliation = asyncio.Event()

    def _perform(self, effect: LoopEffect) -> None:
        match effect:
            case CancelReconciliation():
                self._reconciler.stop_status()
                if self._running is not None:
                    self._running.cancel()
            case ForgetDeployerState():
                self._reconciler.forget_stored()
            case ForgetReports():
                self._reconciler.forget_reports()
            case Publish(event=event):
                self._emit(event)
            case _:
                pass

    @property
    def deployer_state(self) -> DeployerState | None:
        """The stored state as of the last reconciliation, None before the first one."""
        return self._reconciler.last_stored

    @property
    def status(self) -> SourceStatus | None:
        """The relation of the cluster to the repository; None while another replica leads."""
        return self._reconciler.status if self._schedule.state.leading else None

    @property
    def applied(self) -> AppliedRollouts | None:
        """The halted rollouts of the last applied commit; None before it and on a standby."""
        return self._reconciler.applied if self._schedule.state.leading else None

    @property
    def seconds_without_progress(self) -> float:
        """The seconds since the last event of the running reconciliation; reading the source does
        not count.
        """
        return self._emit.seconds_without_progress if self._schedule.state.busy else 0.0

    @property
    def owner(self) -> str:
        """The owner id of its objects."""
        return self._reconciler.target.owner

    @property
    def manifests(self) -> Mapping[Key, Manifest]:
        """The manifests of the applied commit; none before the first reconciliation."""
        return bundle.manifests if (bundle := self.bundle) else {}

    @property
    def bundle(self) -> Bundle | None:
        """The applied commit, rendered; None before one is selected."""
        selected = self._reconciler.selected
        return selected.prepared.bundle if selected and selected.prepared else None

    @property
    def pools(self) -> Sequence[Pool]:
        """The node pools in the file of the cluster."""
        return tuple(bundle.cluster.pools) if (bundle := self.bundle) else ()

    @property
    def cluster(self) -> ClusterFacts | None:
        """The facts of the applied commit about the cluster; None before one is selected."""
        return bundle.cluster if (bundle := self.bundle) else None

    @property
    def orders(self) -> Mapping[str, ClusterOrder]:
        """The places of all clusters of the repository, by the applied commit."""
        return bundle.orders if (bundle := self.bundle) else {}

    @property
    def idle(self) -> bool:
        """Whether no reconciliation runs or is requested."""
        return not self._schedule.state.busy and not self._schedule.state.requested

    def start_leading(self) -> None:
        """Starts reconciliations, the first one at once; the initial state."""
        self._schedule.feed(loop_inputs.LeadershipGained())

    def stop_leading(self) -> None:
        """Restricts the loop to prefetches until `start_leading`; cancels the running
        reconciliation.
        """
        self._schedule.feed(loop_inputs.LeadershipLost())

    def request(self) -> None:
        """Requests a reconciliation that reads Git, now or after the running one."""
        self._schedule.feed(loop_inputs.LookRequested())

    def request_soon(self) -> None:
        """Requests a reconciliation soon, after a change of a plan's inputs."""
        self._reconciler.request_soon()

    def expect(self, commit: CommitId | None) -> None:
        """Requests reconciliations until the server shows the commit: a webhook can arrive before
        its commit is readable.
        """
        self._schedule.feed(loop_inputs.PushExpected(commit))

    def stop(self) -> None:
        """Ends the loop after the running reconciliation."""
        self._schedule.feed(loop_inputs.StopRequested())

    def join(self, claims: Claims, rank: Rank) -> None:
        """Joins the other deployers of a service, which never compete for an object."""
        self._reconciler.join(claims, rank)

    async def run(self) -> None:
        """Reconciles until `stop`."""
        self._reconciler.start()
        try:
            while (phase := await self._schedule.next_phase()) is not LoopPhase.STOPPED:
                self._emit.progress()
                if phase is LoopPhase.RECONCILING:
                    await self._reconcile()
                else:
                    await self._reconciler.prefetch()
                self._schedule.feed(loop_inputs.ReconciliationEnded())
                self.first_reconciliation.set()
        finally:
            await self._reconciler.close()

    async def _reconcile(self) -> None:
        """One reconciliation in its own task, because the loss of leadership cancels it."""
        self._running = running = asyncio.create_task(self._reconciler.reconcile())
        try:
            await asyncio.wait((running,))
            if not running.cancelled():
                running.result()
        finally:
            await ended(running)
