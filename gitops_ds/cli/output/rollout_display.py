"""The progress of rollouts: a bar on a terminal, else one line per change."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gitops_ds.cli.parameters import options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.cli.output.rollout_bar import RolloutBar
    from gitops_ds.core.objects import Key
    from gitops_ds.core.rollouts.rollout_progress import RolloutProgress


class RolloutLines:
    """Prints messages as lines on stderr."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def report(self, message: str) -> None:
        """Shows a message of the wait."""
        options.say(message, quiet=self._quiet)

    def progress(self, key: Key, progress: RolloutProgress) -> None:
        """Shows the nodes that are done; the messages contain them."""


@contextmanager
def shown(
    *, quiet: bool, estimates: Callable[[], Mapping[Key, float]] = dict
) -> Iterator[RolloutLines | RolloutBar]:
    """The display of a wait: a bar if stderr is a terminal.

    `estimates` returns the simulated seconds of rollouts that begin now; it is called for a bar
    only.
    """
    if quiet or not on_terminal():
        yield RolloutLines(quiet=quiet)
        return
    from rich.console import Console

    from gitops_ds.cli.output import rollout_bar

    with rollout_bar.RolloutBar(Console(stderr=True), estimates()) as bar:
        yield bar


def on_terminal() -> bool:
    """Whether stderr is a terminal that moves its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
