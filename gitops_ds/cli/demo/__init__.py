"""`gitops-ds demo`: a rollout, a failure and its revert on a simulated cluster, in a minute."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli.parameters import options
from gitops_ds.core.objects import short

if TYPE_CHECKING:  # --help imports none of these
    from types import FrameType

    from gitops_ds.core.rollouts.rollout_progress import RolloutProgress
    from gitops_ds.status.agents import Agent


@dataclass(frozen=True, kw_only=True)
class DemoArgs(options.CommonArgs):
    """The arguments and options of `gitops-ds demo`."""

    nodes: int
    speed: float
    page: bool


@options.command(DemoArgs)
@options.option(
    "--nodes",
    type=click.IntRange(2, 50),
    default=5,
    show_default=True,
    help="The number of simulated nodes.",
)
@options.option(
    "--speed",
    type=click.FloatRange(0.1, 1000),
    default=5.0,
    show_default=True,
    help="Simulated seconds per second.",
)
@options.option("--page", is_flag=True, help="Also serve the page, until Ctrl-C.")
def demo(args: DemoArgs) -> int:
    """Play a commit, its rollout, a typo, a bad image, the revert commit and the recovery; prints a
    live table on a terminal, else lines.
    """
    from gitops_ds.cli.demo import script

    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        if sys.stdout.isatty() and not args.quiet:
            _with_table(args)
        else:
            script.run(
                script.play(args.nodes, click.echo, lambda _agent, _now: None, page=args.page),
                args.speed,
            )
    except KeyboardInterrupt:
        raise click.exceptions.Abort from None
    return 0


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    """Ends the demo as Ctrl-C does: asyncio cancels the story, and directories are removed. An
    exception from a signal handler could be raised, and lost, in any code.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # ignored, as in a background job of a shell
        handler = signal.default_int_handler
    handler(number, frame)


def _with_table(args: DemoArgs) -> None:
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    from gitops_ds.cli.demo import script
    from gitops_ds.status import agent_json

    title = TableTitle()

    def picture(agent: Agent, now: float) -> Table:
        table = Table(title=title.text(agent, now), title_justify="left")
        for head in ("NODE", "POD", "REVISION", "COMMIT", "STATE", "REASON"):
            table.add_column(head)
        for entry in agent_json.nodes(agent):
            colour = (
                "green"
                if entry["state"] == "Ready"
                else "red"
                if entry["reason"] and entry["blame"] == "template"
                else "yellow"
            )
            cells = [
                entry["node"],
                entry["pod"],
                str(entry["revision"] or ""),
                short(entry["commit"]),
                entry["state"],
                entry["reason"],
            ]
            table.add_row(
                *(Text(cell) for cell in cells[:4]), *(Text(cell, colour) for cell in cells[4:])
            )
        return table

    with Live(refresh_per_second=8) as live:
        script.run(
            script.play(
                args.nodes,
                lambda line: live.console.print(line, highlight=False, markup=False),
                lambda agent, now: live.update(picture(agent, now)),
                page=args.page,
            ),
            args.speed,
        )


class TableTitle:
    """The title of the table: `node-exporter: Progressing, 3 of 5 nodes done, about 20 s left,
    cluster time 40 s`.
    """

    def __init__(self) -> None:
        self._first: RolloutProgress | None = None
        self._began = 0.0

    def text(self, agent: Agent, now: float) -> str:
        """The title at a time of the cluster."""
        from gitops_ds.core.plain_text import counted
        from gitops_ds.status import agents

        progress = agents.nodes_done(agent)
        done = f"{progress.done} of {counted(progress.nodes, 'node')} done"
        state = f"{agent.key.name}: {agent.health.state}"
        return f"{state}, {done}{self._left(progress, now)}, cluster time {now % 86400:.0f} s"

    def _left(self, progress: RolloutProgress, now: float) -> str:
        """The remaining time by the pace of the rollout; empty without one."""
        from gitops_ds.core import duration
        from gitops_ds.core.rollouts.rollout_progress import seconds_left

        if progress.done >= progress.nodes:
            self._first = None
            return ""
        first = self._first
        if first is None or first.nodes != progress.nodes or progress.done < first.done:
            first, self._began = progress, now
        self._first = first
        seconds = seconds_left(first, progress, now - self._began)
        return f", about {duration.words(seconds)} left" if seconds else ""
