"""The hash of a plan, by which it is approved: its outcome, and the number of nodes that lose an
agent. An approval covers the same outcome with at most as many nodes.
"""

from __future__ import annotations

_SEPARATOR = "-"


def hash_of(outcome: str, lost: int) -> str:
    """The hash of the outcome and, after a dash, the number of nodes that lose an agent, unless
    it is 0.
    """
    return f"{outcome}{_SEPARATOR}{lost}" if lost else outcome


def covers(approved: str, hash: str) -> bool:
    """Whether the approval of one hash covers this plan."""
    (granted, most), (outcome, lost) = _parts(approved), _parts(hash)
    return granted == outcome and lost <= most


def _parts(hash: str) -> tuple[str, int]:
    outcome, _, lost = hash.partition(_SEPARATOR)
    return outcome, int(lost) if lost.isdecimal() and len(lost) < 10 else 0
