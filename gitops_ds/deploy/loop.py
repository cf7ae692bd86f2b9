"""The deployer's loop: reconciles one repository with one cluster whenever something requests it.

The schedule, a webhook and a request call `request`; a watch that saw a change feeds
`ClusterChanged`, after which Git is not read. An unchanged commit on an unchanged cluster costs one
`git ls-remote`. While Git does not respond, the known commit is kept applied; before its first
response, the last applied one. A standby only prefetches.

`loop_state` has the diagram and decides the schedule, `loop_state_machine` carries it out;
`reconciler` does the work; the task here connects them. Changes of the repository or of the cluster
are fed as one of `loop_inputs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.base import Emit
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.rollouts.stopped_rollouts import StoppedRollouts
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.deploy import loop_inputs, loop_state
from gitops_ds.deploy.loop_state import LoopPhase
from gitops_ds.deploy.loop_state_machine import LoopStateMachine, LoopTiming
from gitops_ds.deploy.reconciler import Reconciler
from gitops_ds.deploy.reports import LeaderEmitter
from gitops_ds.deploy.revision_selector import RevisionSource
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.kube.client.supervisor import ended
from gitops_ds.ownership.options import ApplyOptions

__all__ = ["Loop", "LoopTiming"]


class Loop(LoopStateMachine):
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
        super().__init__(loop_state.initial(timing.retry, options.compare_every), timing)
        self._emit = LeaderEmitter(emit, lambda: self.state.leading)
        self.reconciler = Reconciler(source, target, options, self, self._emit)
        self.owner = target.owner
        self._running: asyncio.Task[None] | None = None
        self.first_reconciliation = asyncio.Event()

    def _perform(self, effect: loop_inputs.LoopEffect) -> None:
        match effect:
            case loop_inputs.CancelReconciliation():
                self.reconciler.stop_status()
                if self._running is not None:
                    self._running.cancel()
            case loop_inputs.ForgetDeployerState():
                self.reconciler.forget_stored()
            case loop_inputs.ForgetReports():
                self.reconciler.forget_reports()
            case loop_inputs.Publish(event=event):
                self._emit(event)
            case _:
                pass

    @property
    def deployer_state(self) -> DeployerState | None:
        """The stored state as of the last reconciliation, None before the first one."""
        return self.reconciler.last_stored

    @property
    def status(self) -> SourceStatus | None:
        """The relation of the cluster to the repository; None while another replica leads."""
        return self.reconciler.status if self.state.leading else None

    @property
    def stopped_rollouts(self) -> StoppedRollouts | None:
        """The stopped rollouts of the last planned commit; None before it and on a standby."""
        return self.reconciler.stopped_rollouts if self.state.leading else None

    @property
    def seconds_without_progress(self) -> float:
        """The seconds since the last event of the running reconciliation; reading the source does
        not count.
        """
        return self._emit.seconds_without_progress if self.state.busy else 0.0

    @property
    def bundle(self) -> Bundle | None:
        """The applied commit, rendered; None before one is selected."""
        selected = self.reconciler.selected
        return selected.prepared.bundle if selected and selected.prepared else None

    @property
    def manifests(self) -> Mapping[Key, Manifest]:
        """The manifests of the applied commit; none before the first reconciliation."""
        return bundle.manifests if (bundle := self.bundle) else {}

    @property
    def idle(self) -> bool:
        """Whether no reconciliation runs or is requested."""
        return not self.state.busy and not self.state.requested

    def lead(self, leading: bool) -> None:
        """Starts reconciliations, the first one at once, which is the initial state; or restricts
        the loop to prefetches, and cancels the running reconciliation.
        """
        self.feed(loop_inputs.LeadershipGained() if leading else loop_inputs.LeadershipLost())

    def request(self, pushed: CommitId | None = None) -> None:
        """Requests a reconciliation that reads Git, now or after the running one; after a push
        more, until the server shows its commit: a webhook can arrive before it is readable.
        """
        self.feed(loop_inputs.PushExpected(pushed) if pushed else loop_inputs.LookRequested())

    def stop(self) -> None:
        """Ends the loop after the running reconciliation."""
        self.feed(loop_inputs.StopRequested())

    async def run(self) -> None:
        """Reconciles until `stop`."""
        self.reconciler.start()
        try:
            while (phase := await self.next_phase()) is not LoopPhase.STOPPED:
                self._emit.progress()
                if phase is LoopPhase.RECONCILING:
                    await self._reconcile()
                else:
                    await self.reconciler.prefetch()
                self.feed(loop_inputs.ReconciliationEnded())
                self.first_reconciliation.set()
        finally:
            await self.reconciler.close()

    async def _reconcile(self) -> None:
        """One reconciliation in its own task, because the loss of leadership cancels it."""
        self._running = running = asyncio.create_task(self.reconciler.reconcile())
        try:
            await asyncio.wait((running,))
            if not running.cancelled():
                running.result()
        finally:
            await ended(running)
