"""The settings of leader election."""

from __future__ import annotations

import os
from typing import Annotated

import msgspec

from gitops_ds.client.leader_election import LeaseTiming
from gitops_ds.errors import SettingsError
from gitops_ds.model.duration import Duration
from gitops_ds.settings.base import SettingsGroup, default_duration, describe

_LEASE = "gitops-ds"


class ElectionSettings(SettingsGroup, frozen=True):
    """Whether replicas elect a leader, and the name and the times of their lease."""

    enabled: Annotated[
        bool | None, describe("Whether several replicas elect a leader. Default: in a pod.")
    ] = None
    lease: Annotated[str, describe("The name of the lease.")] = _LEASE
    duration: Annotated[Duration, describe("How long a lease is valid after its renewal.")] = (
        default_duration("10s")
    )
    renew_deadline: Annotated[
        Duration, describe("The time without a renewal after which the leader stops.")
    ] = default_duration("7s")
    retry_period: Annotated[Duration, describe("The time between two attempts.")] = (
        default_duration("2s")
    )

    def __post_init__(self) -> None:
        """Raises SettingsError for times that make two leaders possible."""
        if not self.lease:
            msgspec.structs.force_setattr(self, "lease", _LEASE)
        if (
            self.duration < 1
            or self.renew_deadline > 0.9 * self.duration
            or self.retry_period * 2 > self.renew_deadline
        ):
            raise SettingsError(
                "election: duration must be a second or more, renewDeadline at most nine tenths "
                "of it, retryPeriod at most half of that"
            )

    @property
    def timing(self) -> LeaseTiming:
        """The times of the lease, in seconds."""
        return LeaseTiming(self.duration, self.renew_deadline, self.retry_period)

    @property
    def held(self) -> bool:
        """Whether this process takes part in an election."""
        return "KUBERNETES_SERVICE_HOST" in os.environ if self.enabled is None else self.enabled
