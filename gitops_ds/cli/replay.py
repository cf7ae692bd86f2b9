"""`gitops-ds replay`: the decisions of a journal, replayed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from gitops_ds.cli.parameters import arguments, options


@dataclass(frozen=True, kw_only=True)
class ReplayArgs(arguments.CommonArgs):
    """The arguments and options of `gitops-ds replay`."""

    journal: Path
    output: str


@click.command()
@click.argument("journal", type=click.Path(path_type=Path))
@options.output("text", "json")
@options.common
@arguments.typed(ReplayArgs)
def replay(args: ReplayArgs) -> int:
    """Replay every decision of a journal with this version, and compare."""
    from gitops_ds.controller.journal import replay as journals

    result = journals.replay(args.journal)
    if args.output == "json":
        options.show_json(journals.as_json(result))
    else:
        for line in (*result.differences, *result.unread, result):
            click.echo(str(line))
    return 0 if result.agrees else 1
