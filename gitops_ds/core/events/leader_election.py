"""Events of the election of a leader among replicas."""

from __future__ import annotations

from gitops_ds.core.events.base import Event
from gitops_ds.core.events.definition import EventDefinition, Level, Sample

_METRIC = "gitopsds_leader"


class LeaderElectionEvent(Event, frozen=True):
    """An event about a lease, from the replica `me`."""

    namespace: str
    lease: str
    me: str


class StandbyStarted(LeaderElectionEvent, frozen=True):
    """The replica starts without leadership."""

    definition = EventDefinition("StandsBy", Level.INFO, metric=_METRIC)

    def text(self) -> str:
        """The line in the log."""
        return f"leader election by lease {self.namespace}/{self.lease} as {self.me}"

    def samples(self) -> tuple[Sample, ...]:
        """The replica does not lead."""
        return (Sample(_METRIC, value=0),)


class LeaderElected(LeaderElectionEvent, frozen=True):
    """The replica is the leader."""

    definition = EventDefinition(
        "LeaderElected", Level.INFO, reason="LeaderElected", metric=_METRIC
    )

    def text(self) -> str:
        """The line in the log."""
        return f"became leader (lease {self.namespace}/{self.lease})"

    def kube_text(self) -> str:
        """As client-go writes it."""
        return f"{self.me} leads"


class LeaderLost(LeaderElectionEvent, frozen=True):
    """The replica lost leadership; `why` is the cause."""

    definition = EventDefinition("LeaderLost", Level.WARNING, metric=_METRIC)

    why: str

    def text(self) -> str:
        """The line in the log."""
        lease = f"{self.namespace}/{self.lease}"
        return f"lost leadership (lease {lease}); writes stopped: {self.why}"

    def samples(self) -> tuple[Sample, ...]:
        """The replica does not lead."""
        return (Sample(_METRIC, value=0),)


class LeaderObserved(LeaderElectionEvent, frozen=True):
    """Another replica leads: `holder`."""

    definition = EventDefinition("LeaderSeen", Level.INFO)

    holder: str

    def text(self) -> str:
        """The line in the log."""
        return f"on standby: {self.holder} is the leader"


class LeaseFailed(LeaderElectionEvent, frozen=True):
    """The lease is not readable or not writable."""

    definition = EventDefinition("LeaseFailed", Level.WARNING)

    message: str

    def text(self) -> str:
        """The line in the log."""
        return f"lease {self.namespace}/{self.lease}: {self.message}"
