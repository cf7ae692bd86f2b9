"""The colours of a plan on a terminal."""

from __future__ import annotations

import click

_COLOURS = {"+": "green", "~": "yellow", "-": "red", "!": "magenta"}


def coloured(text: str) -> str:
    """The lines of a plan, coloured by sign."""
    lines = text.splitlines(keepends=True)
    return "".join(
        click.style(line, fg=_COLOURS[line[2]])
        if line[:2] == "  " and line[2:3] in _COLOURS
        else line
        for line in lines
    )
