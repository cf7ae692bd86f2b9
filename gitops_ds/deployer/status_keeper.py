"""The status of one repository, updated after each reconciliation and saved in the cluster."""

from __future__ import annotations

from gitops_ds import errors
from gitops_ds.deployer import source_status_store
from gitops_ds.deployer.reconcile_schedule import ReconcileSchedule
from gitops_ds.deployer.report_once import LeaderEmitter
from gitops_ds.deployer.target import DeployTarget
from gitops_ds.model.deployer_state import Steering
from gitops_ds.model.events.deployer import SourceChanged
from gitops_ds.model.sources.source_status import SourceStatus
from gitops_ds.model.values import replace


class StatusKeeper:
    """The status of a repository; `save` runs as long as the deployer."""

    def __init__(
        self, target: DeployTarget, branch: str, schedule: ReconcileSchedule, emit: LeaderEmitter
    ) -> None:
        self.status = SourceStatus(target.owner, target.repository, branch, since=schedule.clock())
        self._schedule, self._emit = schedule, emit
        self._saver = source_status_store.Saver(
            target.cluster, (target.namespace, target.owner), schedule.clock
        )
        self.save, self.close, self.stop = self._saver.run, self._saver.close, self._saver.stop

    def looked(self) -> None:
        """Records a response of Git."""
        self.status = replace(self.status, looked=self._schedule.clock())

    def update(
        self,
        facts: source_status_store.Facts,
        steering: Steering,
        error: errors.GitopsError | None = None,
    ) -> None:
        """The status after a reconciliation. While Git does not respond, it remains unreachable."""
        if error is None and self._schedule.state.git_failing:
            return
        before, now = self.status, self._schedule.clock()
        self.status = source_status_store.after(before, facts, steering, error, now)
        changed = self.status != replace(before, looked=self.status.looked)
        self._saver.update(self.status, write=changed)
        if changed:
            self._emit(SourceChanged(now, self.status, before.condition))
