"""The bar of rollouts on a terminal, and the lines elsewhere."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gitops_ds.cli.output.rollout_bar import RolloutBar
from gitops_ds.core.objects import Key
from gitops_ds.core.rollouts.rollout_progress import RolloutProgress, seconds_left

AGENT = Key("apps", "DaemonSet", "node-agents", "node-exporter")
OTHER = Key("apps", "DaemonSet", "node-agents", "fluentd")


def at(done: int, nodes: int = 40) -> RolloutProgress:
    return RolloutProgress(done, nodes)


@pytest.mark.parametrize(
    ("first", "now", "elapsed", "estimate", "left"),
    [
        (at(0), at(0), 0, None, None),  # neither a pace nor an estimate
        (at(0), at(0), 10, 400, 390),
        (at(0), at(0), 500, 400, None),  # the simulation foresees nothing
        (at(0), at(10), 100, None, 300),
        (at(0), at(10), 100, 4000, 300),  # from a quarter on its own pace counts
        (at(20), at(30), 100, None, 100),  # a wait that begins in the middle
        (at(0), at(40), 100, 400, 0),
        (at(0, 0), at(0, 0), 5, 30, 25),  # the nodes are not known yet
        (at(0), at(5), 100, 400, (100 * 7 + 350) / 2),
        (at(0), RolloutProgress(2, 40, 900.0), 100, 400, 900),  # a staged rollout
        (at(0), RolloutProgress(2, 40, 0.0), 100, 400, None),  # which waits for people
    ],
)
def test_the_remaining_time_is_by_the_pace_and_at_first_by_the_estimate(
    first: RolloutProgress,
    now: RolloutProgress,
    elapsed: float,
    estimate: float | None,
    left: float | None,
) -> None:
    found = seconds_left(first, now, elapsed, estimate)
    assert found == (left if left is None else pytest.approx(left))


@given(st.integers(1, 5000), st.floats(0.1, 60), st.floats(1, 1e5))
def test_at_a_steady_pace_the_remaining_time_falls(
    nodes: int, pace: float, estimate: float
) -> None:
    left = [
        seconds_left(at(0, nodes), at(done, nodes), done * pace, nodes * pace)
        for done in range(1, nodes + 1, max(1, nodes // 50))
    ]
    found = [one for one in left if one is not None]
    assert len(found) == len(left)
    assert all(later < sooner for sooner, later in pairwise(found))
    wrong = seconds_left(at(0, nodes), at(nodes, nodes), nodes * pace, estimate)
    assert wrong == 0


class Terminal:
    """A console of 160 columns, and a clock."""

    def __init__(self) -> None:
        self.written = io.StringIO()
        self.now = 0.0
        self.console = Console(
            file=self.written, force_terminal=True, width=160, color_system=None, _environ={}
        )

    @contextmanager
    def bar(self, estimates: dict[Key, float]) -> Iterator[RolloutBar]:
        with RolloutBar(self.console, estimates, lambda: self.now) as bar:
            yield bar

    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", self.written.getvalue())


def test_the_bar_shows_nodes_done_of_nodes_and_the_time_left() -> None:
    terminal = Terminal()
    with terminal.bar({AGENT: 400.0, OTHER: 100.0}) as bar:
        bar.progress(AGENT, at(0))
        bar.progress(OTHER, at(0, 5))
        assert (bar.nodes(), bar.left()) == ("0/45 nodes", "about 7 min left")
        terminal.now = 60.0
        bar.progress(AGENT, at(20))
        bar.progress(OTHER, at(5, 5))
        bar.report("DaemonSet node-agents/node-exporter: [20] of 40 pods\x1b[31m are updated")
        assert (bar.nodes(), bar.left()) == ("25/45 nodes", "about 60 s left")
        terminal.now = 75.0
        assert bar.left() == "about 45 s left"
        terminal.now = 125.0
        assert bar.left() == ""
        terminal.now = 60.0
    text = terminal.text()
    assert "25/45 nodes" in text
    assert "[20] of 40 pods" in text
    assert text.endswith(
        "DaemonSet node-agents/node-exporter: 20 of 40 nodes after 60 s\n"
        "DaemonSet node-agents/fluentd: 5 of 5 nodes after 60 s\n"
    )


def test_the_time_left_of_a_staged_rollout_is_counted_from_its_last_report() -> None:
    terminal = Terminal()
    with terminal.bar({AGENT: 400.0}) as bar:
        bar.progress(AGENT, RolloutProgress(1, 40, 600.0))
        terminal.now = 60.0
        assert bar.left() == "about 9 min left"
        bar.progress(AGENT, RolloutProgress(1, 40, 600.0))
        assert bar.left() == "about 10 min left"
        bar.progress(AGENT, RolloutProgress(1, 40, 0.0))
        assert bar.left() == ""


def test_a_wait_that_fails_leaves_no_line_of_the_bar() -> None:
    terminal = Terminal()

    def wait() -> None:
        with terminal.bar({}) as bar:
            bar.progress(AGENT, at(20))
            raise ValueError("halted")

    with pytest.raises(ValueError, match="halted"):
        wait()
    assert "after" not in terminal.text()


SCENE = """
from gitops_ds.cli.output import rollout_display
from gitops_ds.core.objects import Key
from gitops_ds.core.rollouts.rollout_progress import RolloutProgress
import sys
with rollout_display.shown(quiet=False, estimates=lambda: print("estimated") or {}) as display:
    display.progress(Key("apps", "DaemonSet", "d", "a"), RolloutProgress(1, 2))
    display.report("DaemonSet d/a: 1 of 2 pods are updated")
print("rich" in sys.modules)
"""


def test_elsewhere_each_change_is_a_line_without_rich_or_an_estimate() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCENE], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == "DaemonSet d/a: 1 of 2 pods are updated\n"
    assert done.stdout == "False\n"


@pytest.mark.sampled
@pytest.mark.parametrize(("term", "bar"), [("xterm", True), ("dumb", False)])
def test_a_terminal_gets_a_bar_and_a_dumb_one_lines(term: str, bar: bool) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", SCENE],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": term, "NO_COLOR": "1"},
        check=True,
        timeout=60,
    )
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
        shown = os.read(file.fileno(), 100_000).decode()
    assert done.stdout.decode() == ("estimated\nTrue\n" if bar else "False\n")
    assert ("1/2 nodes" in shown) == bar
