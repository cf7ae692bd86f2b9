"""Startup taints: nodes that get no work before their required agents are ready."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.live import Taint
from gitops_ds.core.objects import Key

OWN = Taint(f"{names.DOMAIN}/agents-not-ready", "NoSchedule")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def is_required(annotations: Mapping[str, Any]) -> bool:
    """Whether nodes wait for a DaemonSet with these annotations."""
    return bool(annotations.get(names.REQUIRED_FOR_WORK) == "true")


class Enforce(StrEnum):
    """BOOTSTRAP removes startup taints and adds none; CONTINUOUS adds our own again."""

    BOOTSTRAP = "bootstrap"
    CONTINUOUS = "continuous"


class StartupTaintPolicy(msgspec.Struct, frozen=True):
    """Which taints are removed from a node with ready agents, and when `own` is added again.

    An empty effect in `others` is any effect. `own` is added to a node whose agent has not been
    ready for `not_ready_for` seconds, unless a `share` of all nodes (0 to 1), or `nodes`, would be
    exceeded. After `report_after` seconds a wait is reported, and stuck agents no longer count.
    `mirrors` are prefixes of images that admission puts in the place of a registry.
    """

    own: Taint = OWN
    others: tuple[Taint, ...] = ()
    enforce: Enforce = Enforce.BOOTSTRAP
    share: float = 0.1
    nodes: int | None = None
    not_ready_for: float = 120.0
    report_after: float = 300.0
    mirrors: tuple[str, ...] = ()

    def most(self, total: int) -> int:
        """How many of all nodes may have our taint when it is added, rounded down."""
        # 29 % of 100 are 28.999999999999996
        return int(self.share * total + 1e-9) if self.nodes is None else self.nodes

    def covers(self, taint: Taint) -> bool:
        """Whether we remove this taint; its value does not matter."""
        return any(
            reader.key == taint.key and reader.effect in ("", taint.effect)
            for reader in (self.own, *self.others)
        )


def parse(text: str) -> Taint:
    """The taint of `KEY` or `KEY:EFFECT`. Raises ValueError for another effect."""
    key, separator, effect = text.partition(":")
    if not key or (separator and effect not in _EFFECTS):
        raise ValueError(f"{text!r} is not a taint: write KEY:{_EFFECTS[0]}")
    return Taint(key, effect)


class AgentWait(msgspec.Struct, frozen=True):
    """A required agent that is not ready on a node: the reason in one word, and the message.

    `until` is when that changes without an event, in seconds since 1970, None if unknown. `stuck`:
    only a person can change it, at the earliest `since` a time. `planned`: its pod has the template
    of a rollout in progress, or is ready with another one, which only a rollout replaces.
    """

    agent: Key
    reason: str
    message: str = ""
    until: float | None = None
    stuck: bool = False
    since: float = 0.0
    planned: bool = False

    @property
    def text(self) -> str:
        """`kube-system/cilium: ImagePullBackOff: container agent: not found`."""
        detail = f": {self.message}" if self.message else ""
        return f"{self.agent.namespace}/{self.agent.name}: {self.reason}{detail}"


class NodeWait(msgspec.Struct, frozen=True):
    """A node with a startup taint that waits for these agents since a time (seconds since 1970).
    `cause`: why it keeps the taint although it waits for none.
    """

    node: str
    uid: str
    since: float
    agents: tuple[AgentWait, ...]
    ready: bool = True
    cause: str = ""

    @property
    def text(self) -> str:
        """The agents with their reasons; that of the node comes first."""
        agents = [agent.text for agent in self.agents] or [self.cause] * bool(self.cause)
        return "; ".join(agents if self.ready else ["the node is not ready", *agents])


class TaintChange(msgspec.Struct, frozen=True):
    """The taints of a node to remove, by their indexes in `taints`, its present ones, or the one to
    add. `agents` are those that are not ready at that time.
    """

    node: str
    uid: str
    taints: tuple[Taint, ...]
    removed: tuple[int, ...] = ()
    added: Taint | None = None
    agents: tuple[AgentWait, ...] = ()
