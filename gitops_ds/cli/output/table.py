"""Tables as kubectl prints them: columns three spaces apart, no lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import click

from gitops_ds.core import plain_text

# of health, of sync, of nodes and of clusters
_COLOURS = {
    **dict.fromkeys(("Healthy", "Synced", "Ready", "Proved"), "green"),
    **dict.fromkeys(("Progressing", "Suspended", "Held", "Waiting", "Terminating"), "yellow"),
    **dict.fromkeys(("Degraded", "Failed", "Missing", "OutOfSync", "NotReady"), "red"),
}
_STATE = re.compile(rf"(?:(?<=   )|^)(?:{'|'.join(_COLOURS)})(?=   |:|$)", re.MULTILINE)


def columns(head: Sequence[str], rows: Iterable[Sequence[str]], *, headers: bool = True) -> str:
    """The table as text, with a line break at its end; an empty cell is `<none>`."""
    lines = [list(head), *([plain_text.line(cell) or "<none>" for cell in row] for row in rows)]
    for cells in lines:
        if len(cells) != len(head):
            raise ValueError(f"{len(cells)} cells below {len(head)} columns: {', '.join(head)}")
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in (lines if headers else lines[1:])
    )


_LONGEST_LINE = 2_000


def line(text: str) -> str:
    """A line beside a table. Messages quote annotations and events of other writers."""
    return f"{plain_text.line(text, _LONGEST_LINE)}\n"


def coloured(text: str) -> str:
    """A printable table with coloured states; a state is a separate cell or starts a line."""
    from gitops_ds.checks.report import printable

    text = printable.block(text)
    return _STATE.sub(lambda match: click.style(match[0], fg=_COLOURS[match[0]]), text)
