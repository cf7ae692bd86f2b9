"""A plan on a terminal: printable, with colours."""

from __future__ import annotations

import click

from gitops_ds.report import printable

_COLOURS = {"+": "green", "~": "yellow", "-": "red", "!": "magenta"}


def coloured(text: str) -> str:
    """The lines of a plan, coloured by sign. They quote Git, the cluster and its API server, so
    control characters and workflow commands are escaped.
    """
    lines = printable.block(text).splitlines(keepends=True)
    return "".join(
        click.style(line, fg=_COLOURS[line[2]])
        if line[:2] == "  " and line[2:3] in _COLOURS
        else line
        for line in lines
    )
