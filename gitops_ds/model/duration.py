"""A duration in words."""

from __future__ import annotations


def words(seconds: float) -> str:
    """`90 s`, `12 min`, `3.5 h`."""
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
