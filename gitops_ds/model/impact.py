"""What a change does to the nodes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeImpact:
    """Names of nodes that get, lose, or see restarted an agent's pod; each sorted."""

    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
