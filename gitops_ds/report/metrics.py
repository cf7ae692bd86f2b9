"""Counters for Prometheus, folded from records; never a node's name or a commit's subject as a label."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from gitops_ds.model import deployment, leading, record, steering
from gitops_ds.model.change import Drift
from gitops_ds.model.record import Record


class Metrics:
    """The service's own metrics in a registry of their own."""

    def __init__(self) -> None:
        """All begin at zero."""
        self._registry = CollectorRegistry()
        made = self._registry
        self._passes = Counter("gitopsds_reconcile", "Passes of the deployer.", ["result"], registry=made)
        self._writes = Counter("gitopsds_applied", "Objects written.", ["operation"], registry=made)
        self._refused = Counter("gitopsds_refused", "Objects not written, by guard.", ["guard"], registry=made)
        self._last = Gauge("gitopsds_git_last_success_timestamp_seconds", "When Git last was as the cluster is.", registry=made)
        self._drift = Counter("gitopsds_drift", "Objects that somebody changed in the cluster.", ["action"], registry=made)
        self._rejected = Counter("gitopsds_commits_rejected", "Commits whose findings stood in the way.", registry=made)
        self._differed = Counter("gitopsds_shadow_differences", "What theirs did otherwise.", ["what"], registry=made)
        self._compared = Counter("gitopsds_shadow_intervals", "Intervals compared.", ["result"], registry=made)
        self._info = Gauge("gitopsds_commit_info", "The commit that was applied last.", ["commit"], registry=made)

        self._leader = Gauge("gitopsds_leader", "Whether this replica leads.", registry=made)
        self._leader.set(1)  # a service alone
        self._hooks = Counter("gitopsds_webhook_requests", "Requests to the webhook.", ["result"], registry=made)

    def hear(self, told: Record) -> None:
        """Counts one record."""
        self._asked(told)
        match told:
            case deployment.PassEnded(at=at, commit=commit, refusals=refusals):
                self._passes.labels("success").inc()
                self._last.set(at)
                self._info.clear()
                self._info.labels(commit or "").set(1)
                for refusal in refusals:
                    self._refused.labels(refusal.guard).inc()
            case deployment.Unchanged(at=at):
                self._passes.labels("unchanged").inc()
                self._last.set(at)
            case deployment.PassFailed():
                self._passes.labels("failure").inc()
            case deployment.Applied(change=change):
                self._writes.labels(change.operation.value).inc()
            case deployment.DriftDetected(drifted=drifted) if drifted.choice is Drift.REPORT:
                self._drift.labels("reported").inc()
            case deployment.DriftHeld():
                self._drift.labels("held").inc()
            case deployment.DriftCorrected():
                self._drift.labels("corrected").inc()
            case deployment.CommitRejected():
                self._rejected.inc()
            case record.Differed(what=what):
                self._differed.labels(what.value).inc()
            case record.Compared(differences=differences):
                self._compared.labels("differed" if differences else "agreed").inc()
            case leading.StandsBy() | leading.LeaderLost():
                self._leader.set(0)
            case leading.LeaderElected():
                self._leader.set(1)
            case _:
                pass

    def _asked(self, told: Record) -> None:
        if isinstance(told, steering.HookHeard):
            self._hooks.labels(told.result.value).inc()

    def text(self) -> bytes:
        """The exposition text. https://prometheus.io/docs/instrumenting/exposition_formats/"""
        return generate_latest(self._registry)
