"""The effect of a change on the nodes."""

from __future__ import annotations

import msgspec


class JoinTime(msgspec.Struct, frozen=True):
    """The seconds from the creation of a node until its agent was available, the median of these
    many nodes.
    """

    seconds: float
    nodes: int


class NodeImpact(msgspec.Struct, frozen=True):
    """Names of nodes on which an agent's pod is added, removed or restarted; each sorted. `waiting`
    are those that wait for the agent from now on if they have a startup taint; `joined` is how long
    nodes that joined would have waited, None if unknown.
    """

    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    joined: JoinTime | None = None
