"""What a change does to the nodes."""

from __future__ import annotations

import msgspec


class NodeImpact(msgspec.Struct, frozen=True):
    """Names of nodes that get, lose, or see restarted an agent's pod; each sorted."""

    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
