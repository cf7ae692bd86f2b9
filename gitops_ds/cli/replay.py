"""`gitops-ds replay`: the decisions of a journal, taken again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gitops_ds.cli import options


@click.command()
@click.argument("journal", type=click.Path(path_type=Path))
@options.output("text", "json")
@options.common
def replay(journal: Path, **given: Any) -> int:
    """Take every decision of a journal again, by this version, and compare."""
    from gitops_ds.controller.journal import replay as journals

    found = journals.replay(journal)
    if given["output"] == "json":
        options.show_json(journals.as_json(found))
    else:
        for line in (*found.differences, *found.unread, found):
            click.echo(str(line))
    return 0 if found.agrees else 1
