"""The effect of a change on the nodes."""

from __future__ import annotations

import msgspec


class NodeImpact(msgspec.Struct, frozen=True):
    """Names of nodes on which an agent's pod is added, removed or restarted; each sorted. `waiting`
    are those that wait for the agent from now on if they have a startup taint.
    """

    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
