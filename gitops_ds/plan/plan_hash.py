"""What an approval by hash is worth: for that outcome, and for no more nodes that lose an agent
than its number says.
"""

from __future__ import annotations

_SEPARATOR = "-"


def hash_of(outcome: str, lost: int) -> str:
    """The hash of a plan: what comes of it and, after a dash, the number of nodes that lose an
    agent, if any do.
    """
    return f"{outcome}{_SEPARATOR}{lost}" if lost else outcome


def covers(approved: str, hash: str) -> bool:
    """Whether the approval of one hash is one of this plan: the same outcome, with at most as many
    nodes that lose an agent.
    """
    (granted, most), (outcome, lost) = _parts(approved), _parts(hash)
    return granted == outcome and lost <= most


def _parts(hash: str) -> tuple[str, int]:
    outcome, _, lost = hash.partition(_SEPARATOR)
    return outcome, int(lost) if lost.isdecimal() and len(lost) < 10 else 0
