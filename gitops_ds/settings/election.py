"""The settings of the election among replicas."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gitops_ds.client.leader_election import LeaseTiming
from gitops_ds.errors import SettingsError
from gitops_ds.settings import durations


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """Whether replicas elect a leader (None: in a pod), the lease's name, and its times."""

    enabled: bool | None = None
    lease: str = "gitops-ds"
    timing: LeaseTiming = field(default_factory=LeaseTiming)

    @property
    def held(self) -> bool:
        """Whether it takes place here."""
        return "KUBERNETES_SERVICE_HOST" in os.environ if self.enabled is None else self.enabled


def parse(told: Mapping[str, Any]) -> ElectionSettings:
    """The settings of a group that its schema found right. Raises SettingsError for times that make
    two leaders possible.
    """
    usual = LeaseTiming()
    timing = LeaseTiming(
        durations.seconds(told.get("duration", usual.duration)),
        durations.seconds(told.get("renewDeadline", usual.renew_deadline)),
        durations.seconds(told.get("retryPeriod", usual.retry)),
    )
    if (
        timing.duration < 1
        or timing.renew_deadline > 0.9 * timing.duration
        or timing.retry * 2 > timing.renew_deadline
    ):
        raise SettingsError(
            "election: duration must be a second or more, renewDeadline at most nine tenths of "
            "it, retryPeriod at most half of that"
        )
    return ElectionSettings(told.get("enabled"), told.get("lease") or "gitops-ds", timing)
