"""The policy of a staged rollout: the values of agents/NAME/rollout.yaml with their defaults.

The JSON schema (schemas/rollout.schema.json) has the same keys; docs/rollouts.md explains them. All
times are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from gitops_ds.core import duration
from gitops_ds.core.duration import Duration
from gitops_ds.core.objects import Body

CANARY, REST = "canary", "rest"

_CANARY: Body = {"nodes": {"count": 1}, "soak": "10m"}
_SOAK = "1m"
_IDLE_OR = "idle-or-"


class PercentChange(float):
    """A change in per cent with its sign; `+30%` or `-20%` in a policy file."""


class NodeShare:
    """A number of nodes, or a percentage of them; `3` or `2.5%` in a policy file."""

    __slots__ = ("amount", "is_percent")

    def __init__(self, text: int | str) -> None:
        self.is_percent = isinstance(text, str) and text.endswith("%")
        self.amount = float(str(text).removesuffix("%"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeShare) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"{self.amount:g}{'%' if self.is_percent else ''}"

    def __repr__(self) -> str:
        return f"NodeShare({str(self)!r})"

    def of(self, total: int) -> int:
        """The number of nodes, rounded up, as the API rounds maxUnavailable."""
        return math.ceil(self.amount * total / 100) if self.is_percent else math.ceil(self.amount)


class _Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A group of keys of the policy file."""


class NodeCount(_Part, frozen=True):
    """The number of nodes of a stage. Each number is a minimum, so the largest one counts."""

    count: int = 0
    percent: NodeShare | None = None
    per_variant: int = 0
    per_zone: int = 0
    prefer: Mapping[str, str] = {}


class LabelMatch(_Part, frozen=True):
    """A condition on one node label, as in the files of clusters."""

    key: str
    in_: tuple[str, ...] | None = msgspec.field(default=None, name="in")
    not_in: tuple[str, ...] | None = None
    exists: bool | None = None


class NodeScope(_Part, frozen=True):
    """The nodes that a stage is for: those of some pools, or with some labels. All must match."""

    pool: tuple[str, ...] = ()
    match: tuple[LabelMatch, ...] = ()


class Pace(_Part, frozen=True):
    """The sizes of the batches of a stage: `start`, then multiplied by `factor`, at most `max`."""

    start: NodeShare = NodeShare(1)
    factor: float = 2.0
    max: NodeShare = NodeShare("10%")
    every: Duration = Duration(0)


class Approval(_Part, frozen=True):
    """Who must approve before a stage opens, and after how many seconds a missing approval is
    reported.
    """

    from_: tuple[str, ...] = msgspec.field(name="from")
    within: Duration = Duration(86400)


class Stage(_Part, frozen=True):
    """One stage: its nodes, its pace, its soak, and the conditions that open and pass it."""

    name: str
    nodes: NodeCount | None = None
    where: NodeScope | None = None
    pace: Pace = Pace()
    soak: Duration = Duration(60)
    gates: tuple[str, ...] = ("pods", "nodes")
    one_at_a_time: str = ""
    soak_between: Duration = Duration(0)
    windows: tuple[str, ...] = ()
    nodes_when: str = "any"
    until: Duration = Duration(86400)
    approval: Approval | None = None

    @property
    def idle_for(self) -> float:
        """The seconds for which an open stage takes only idle nodes: infinite with `nodesWhen:
        idle`, 24 h with `idle-or-24h`, else 0.
        """
        if self.nodes_when == "idle":
            return math.inf
        return duration.seconds(self.nodes_when.removeprefix(_IDLE_OR)) if self.is_idle else 0.0

    @property
    def is_idle(self) -> bool:
        """Whether idle nodes are taken first."""
        return self.nodes_when == "idle" or self.nodes_when.startswith(_IDLE_OR)


class AtRiskLimits(_Part, frozen=True):
    """Hard caps on the nodes at risk at once; the smallest counts."""

    cluster: NodeShare = NodeShare("10%")
    per_zone: NodeShare | None = None
    per_variant: NodeShare | None = None
    nodes: int | None = None


class ApiLimits(_Part, frozen=True):
    """The load on the API server."""

    writes_per_second: float | None = None


class RegistryLimits(_Part, frozen=True):
    """The load on the image registry."""

    concurrent_pulls: int | None = None


class Limits(_Part, frozen=True):
    """The caps of a rollout. With more than `parked` parked nodes the rollout is on hold."""

    at_risk: AtRiskLimits = AtRiskLimits()
    parked: NodeShare = NodeShare("20%")
    api: ApiLimits = ApiLimits()
    registry: RegistryLimits = RegistryLimits()


class Neighbours(_Part, frozen=True):
    """The limits for the other pods of a touched node."""

    newly_unready: int | None = None
    new_restarts: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether one of the limits is set."""
        return self.newly_unready is not None or self.new_restarts is not None


class GateComparison(_Part, frozen=True):
    """The largest change, in per cent with its sign, against the time before or against control
    nodes.
    """

    before: PercentChange | None = None
    control: PercentChange | None = None


class GateWebhook(_Part, frozen=True):
    """The address of a webhook that decides about a gate, and its timeout in seconds."""

    url: str
    timeout: Duration = Duration(10)


class Gate(_Part, frozen=True):
    """A condition that must hold for the touched nodes of a stage. `below` and `above` are fixed
    bounds of `prometheus`; `data_of` is the share of the touched nodes that must have a value;
    `for_` is the number of seconds for which a condition must be met, or violated, to count.
    """

    ready_within: Duration = Duration(180)
    restarts: int = 0
    reasons: Literal["none"] | tuple[str, ...] = "none"
    memory_of_limit: NodeShare | None = None
    conditions: tuple[str, ...] = ("Ready", "!MemoryPressure", "!DiskPressure", "!PIDPressure")
    neighbours: Neighbours = Neighbours()
    prometheus: str = ""
    webhook: GateWebhook | None = None
    compare: GateComparison = GateComparison()
    below: float | None = None
    above: float | None = None
    no_data: Literal["hold", "fail", "pass"] = "hold"
    data_of: NodeShare = NodeShare("100%")
    for_: Duration = msgspec.field(default=Duration(0), name="for")


class Revert(_Part, frozen=True):
    """How a failed commit is reverted in Git, after a delay in seconds in which a person can
    act.
    """

    after: Duration = Duration(120)
    how: Literal["commit", "pull-request", "none"] = "commit"


class OnFailure(_Part, frozen=True):
    """The effect of a failed gate."""

    halt: Literal["at-once", "after-batch"] = "at-once"
    scope: Literal["agent", "cluster"] = "agent"
    revert: Revert = Revert()


class Progress(_Part, frozen=True):
    """When a rollout, or one node of it, counts as stuck."""

    deadline: Duration = Duration(6 * 3600)
    per_node: Duration = Duration(600)


class NewNodes(_Part, frozen=True):
    """The template for nodes that join during a rollout."""

    get: Literal["stable", "target"] = "stable"
    until: Literal["every-variant-proved", "end"] = "end"


class ConfigPolicy(_Part, frozen=True):
    """How a change of a ConfigMap reaches the pods."""

    rolls: Literal["like-template"] = "like-template"


class TemplateCommit(_Part, frozen=True):
    """When the DaemonSet gets the target template: `late` is after the first stage, with more than
    half of the nodes done.
    """

    commit: Literal["late", "at-end"] = "at-end"


class Rollback(_Part, frozen=True):
    """How an earlier proven template is restored: with `skip` without soaks and gates, if it was in
    force `within` that many seconds; else as any other template.
    """

    stages: Literal["keep", "skip"] = "skip"
    within: Duration = Duration(7 * 86400)


class Window(_Part, frozen=True):
    """A time span in which pods may be replaced: it opens by `cron` and stays open for `length`
    seconds.
    """

    cron: str
    length: Duration
    timezone: str = "UTC"


class Freeze(_Part, frozen=True):
    """Days (inclusive, UTC) without rollouts, except those of `except`."""

    from_: str = msgspec.field(name="from")
    to: str
    except_: tuple[str, ...] = msgspec.field(default=(), name="except")


class After(_Part, frozen=True):
    """An agent that must be updated first: on each node (`same_node`), or in the whole cluster."""

    agent: str
    same_node: bool = False


_DEFAULT_GATE = Gate()


class RolloutPolicy(_Part, frozen=True):
    """The whole policy of one agent. The last stage is always `rest`, which takes every node that
    no stage names.
    """

    policy: Literal["v1"] = "v1"
    stages: tuple[Stage, ...] = ()
    limits: Limits = Limits()
    gates: Mapping[str, Gate] = {}
    on_failure: OnFailure = OnFailure()
    progress: Progress = Progress()
    new_nodes: NewNodes = NewNodes()
    config: ConfigPolicy = ConfigPolicy()
    supersede: Literal["newest-from-canary", "finish-first"] = "newest-from-canary"
    template: TemplateCommit = TemplateCommit()
    rollback: Rollback = Rollback()
    at_rest: Literal["OnDelete", "RollingUpdate"] = "OnDelete"
    windows: Mapping[str, Window] = {}
    freeze: tuple[Freeze, ...] = ()
    after: tuple[After, ...] = ()

    def gate(self, name: str) -> Gate:
        """The gate of that name; `pods` and `nodes` exist without an entry."""
        return self.gates.get(name, _DEFAULT_GATE)


def decode(document: Body) -> RolloutPolicy:
    """The policy of a document that matches the JSON schema; a stage may be its name alone.

    Raises ValueError for a document that does not match, and for two stages of one name.
    """
    stated = document.get("stages") or (CANARY, REST)
    if not isinstance(stated, list | tuple):
        raise ValueError("stages must be a list")
    stages = [_stage(stage) for stage in stated]
    names = [str(stage.get("name")) for stage in stages]
    if REST not in names:
        stages.append(_stage(REST))
        names.append(REST)
    if names[-1] != REST:
        raise ValueError(f"the stage {REST} must be the last one")
    if len(set(names)) < len(names):
        raise ValueError("each stage must have a name of its own")
    try:
        return msgspec.convert(
            {**document, "stages": stages}, RolloutPolicy, strict=False, dec_hook=_decode_value
        )
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _stage(one: Any) -> dict[str, Any]:
    stage = dict(one) if isinstance(one, Mapping) else {"name": one}
    is_canary = stage.get("name") == CANARY
    stage = {**(_CANARY if is_canary else {"soak": _SOAK}), **stage}
    where = stage.get("where")
    if isinstance(where, Mapping) and isinstance(where.get("pool"), str):
        stage["where"] = {**where, "pool": [where["pool"]]}
    return stage


def _decode_value(kind: type[Any], value: Any) -> Any:
    if kind is PercentChange:
        return PercentChange(str(value).removesuffix("%"))
    return duration.seconds(value) if kind is Duration else kind(value)
