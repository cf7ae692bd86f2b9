"""The measured gates of a staged rollout: the probes, the readings, and their records.

All times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from gitops_ds.core.objects import CommitId, Key


class ProbeKind(StrEnum):
    """What a gate measures: the key of the gate in the policy."""

    PROMETHEUS = "prometheus"
    WEBHOOK = "webhook"
    MEMORY = "memoryOfLimit"
    NEIGHBOURS = "neighbours"


class Probe(msgspec.Struct, frozen=True, order=True):
    """One measured key of a gate of a stage."""

    stage: str
    gate: str
    kind: ProbeKind

    @property
    def key(self) -> str:
        """Its key in the record of a rollout."""
        return f"{self.stage}/{self.gate}.{self.kind}"


class GateSample(msgspec.Struct, frozen=True):
    """A measured number, which may be NaN or infinite. `labels` are those of the series, `bound` is
    the key of the policy that limits it if a probe has several; `before` is the value of the series
    before the first touched node, None if it did not exist. `node` is the node that its labels
    name, else empty.
    """

    value: float
    labels: str = ""
    bound: str = ""
    before: float | None = None
    node: str = ""


class Reading(msgspec.Struct, frozen=True):
    """The result of one measurement.

    `nodes` are the touched nodes that it covers; each of `about` should have a sample of its own.
    `control` are the values of untouched nodes.
    `passes` is the result of a webhook, and `reason` its text; without data `reason` is the cause.
    `unavailable`: the settings of the service are the cause, so `noData` does not apply. `first` is
    the time of the first reading of this process: no reading of the gate is missing since then.
    """

    at: float
    nodes: frozenset[str] = frozenset()
    samples: tuple[GateSample, ...] = ()
    control: tuple[float, ...] = ()
    passes: bool | None = None
    reason: str = ""
    unavailable: bool = False
    first: float = 0.0
    about: frozenset[str] = frozenset()


class Verdict(StrEnum):
    """What a reading shows: every bound is met, one is exceeded, or there is no data."""

    MET = "met"
    EXCEEDED = "exceeded"
    NO_DATA = "no-data"


class GateRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last verdict about a probe, the time since which every reading confirms it, and the
    measured values of the first of these readings as text.
    """

    verdict: Verdict
    since: float
    text: str = ""


class GateEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a gate failed: the query (for a webhook, its address), the value, its bound, and some of
    the nodes.
    """

    gate: str
    query: str
    value: str
    bound: str = ""
    nodes: tuple[str, ...] = ()
    count: int = 0

    @property
    def lines(self) -> tuple[str, ...]:
        """The evidence as text, one fact per line."""
        more = f" and {self.count - len(self.nodes)} more" if self.count > len(self.nodes) else ""
        facts = {
            "gate": self.gate,
            "query": self.query,
            "value": self.value,
            "bound": self.bound,
            "nodes": ", ".join(self.nodes) + more,
        }
        return tuple(f"{name}: {value}" for name, value in facts.items() if value)


class Subject(msgspec.Struct, frozen=True):
    """The subject of a measurement: the rollout, the probe, and the touched nodes."""

    daemonset: Key
    uid: str
    commit: CommitId
    probe: Probe
    nodes: tuple[str, ...]


class PrometheusRequest(msgspec.Struct, frozen=True):
    """A query about the touched nodes, the same query for the time `before` they were touched, and
    for untouched nodes; empty for none. `about` are the nodes that the query names.
    """

    subject: Subject
    query: str
    before: float | None = None
    control: str = ""
    about: tuple[str, ...] = ()


class WebhookRequest(msgspec.Struct, frozen=True):
    """A request to a webhook; `timeout` is in seconds."""

    subject: Subject
    url: str
    timeout: float


class MemoryRequest(msgspec.Struct, frozen=True):
    """The memory of the pods of the target, on the touched nodes. `limits` are those of the
    containers, in bytes; `label` is the value of the rollout's label of the pods.
    """

    subject: Subject
    label: str
    # the node of each pod, by its name
    pods: Mapping[str, str] = msgspec.field(default_factory=dict)
    limits: Mapping[str, int] = msgspec.field(default_factory=dict)


class NeighboursRequest(msgspec.Struct, frozen=True):
    """The other pods on the touched nodes; `touched` is when the pod of the target was created on
    each.
    """

    subject: Subject
    touched: Mapping[str, float] = msgspec.field(default_factory=dict)


GateRequest = PrometheusRequest | WebhookRequest | MemoryRequest | NeighboursRequest
