"""The bar of rollouts on a terminal; it imports rich, so it is imported on demand."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from gitops_ds.core import duration, plain_text
from gitops_ds.core.objects import Key
from gitops_ds.core.plain_text import counted
from gitops_ds.core.rollouts.rollout_progress import RolloutProgress, seconds_left


class RolloutBar:
    """One bar for all rollouts: nodes done of nodes, remaining time, and the last message. At its
    end a line for each rollout replaces it.
    """

    def __init__(
        self,
        console: Console,
        estimates: Mapping[Key, float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`estimates` are the simulated seconds of rollouts that begin now; `clock` returns
        seconds.
        """
        self._estimates, self._clock, self._began = estimates, clock, clock()
        self._first: dict[Key, RolloutProgress] = {}
        self._now: dict[Key, RolloutProgress] = {}
        self._moved: dict[Key, float] = {}  # seconds from the beginning to the last progress
        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._bar = Progress(
            BarColumn(bar_width=30),
            _Computed(self.nodes),
            _Computed(self.left),
            TextColumn("{task.description}", markup=False, table_column=rest),
            console=console,
            transient=True,
            expand=True,
            refresh_per_second=2,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> RolloutBar:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()
        seconds = duration.words(self._clock() - self._began)
        for key, now in self._now.items():
            text = f"{key}: {now.done} of {counted(now.nodes, 'node')} after {seconds}"
            if kind is None:
                self._bar.console.print(text, highlight=False, markup=False)

    def report(self, message: str) -> None:
        """Shows the message beside the bar."""
        self._bar.update(self._task, description=plain_text.line(message))

    def progress(self, key: Key, progress: RolloutProgress) -> None:
        """Moves the bar."""
        self._first.setdefault(key, progress)
        if self._now.get(key) != progress or progress.left is not None:
            self._moved[key] = self._clock() - self._began
        self._now[key] = progress
        total = self._total()
        self._bar.update(self._task, completed=total.done, total=total.nodes or None)

    def nodes(self) -> str:
        """`12/40 nodes`; empty before the first progress."""
        total = self._total()
        return f"{total.done:,}/{counted(total.nodes, 'node')}" if total.nodes else ""

    def left(self) -> str:
        """The remaining time of the slowest rollout, counted down between two progresses; empty if
        one is unknown or overdue.
        """
        elapsed, longest = self._clock() - self._began, 0.0
        for key, now in dict(self._now).items():
            moved, estimate = self._moved[key], self._estimates.get(key)
            seconds = seconds_left(self._first[key], now, moved, estimate)
            if seconds is None or 0 < seconds <= elapsed - moved:
                return ""
            longest = max(longest, seconds - (elapsed - moved))
        return f"about {duration.words(longest)} left" if longest else ""

    def _total(self) -> RolloutProgress:
        now = tuple(self._now.values())  # a copy: the bar is drawn in a separate thread
        return RolloutProgress(
            sum(progress.done for progress in now), sum(progress.nodes for progress in now)
        )


class _Computed(ProgressColumn):
    """A column with a text that is computed each time the bar is drawn."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        super().__init__(Column(no_wrap=True))

    def render(self, task: Task) -> Text:
        """The text now."""
        return Text(self._text())
