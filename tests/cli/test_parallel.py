"""A check of many files by two processes finds what one finds, even if the other one dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from gitops_ds.cli.check import parallel, run
from gitops_ds.cli.check.model import CheckInput, CheckResult
from gitops_ds.core.sources.source_tree import CachedResults, SourceTree
from gitops_ds.core.values import replace
from tests.checks.test_rule_pages import GOOD

PROGRAM = Path(sys.executable).with_name("gitops-ds")
MANY = 450


def manifest(number: int, image: str = "1.2.3") -> bytes:
    """An agent against which no rule has a word, but for every fiftieth: it selects other labels
    than its pods have.
    """
    text = GOOD.replace("name: agent", f"name: a{number:03d}").replace("1.2.3", image)
    return (
        text.replace("matchLabels: {app.kubernetes.io/name:", "matchLabels: {app:")
        if number % 50 == 7
        else text
    ).encode()


def files(count: int = MANY) -> dict[PurePosixPath, bytes]:
    return {PurePosixPath(f"{number:03d}.yaml"): manifest(number) for number in range(count)}


def sides(**more: Any) -> CheckInput:
    return CheckInput(SourceTree(None, files(), **more), None, {})


def outcome(checked: CheckResult) -> Any:
    return (
        checked.findings,
        [one.bundle.manifests for one in checked.prepared],
        [one.clean for one in checked.prepared],
    )


@pytest.fixture(scope="module")
def alone() -> Iterator[Callable[..., Any]]:
    """Calls in a process without other threads, as the command has it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield lambda work: pool.submit(work).result(120)


def what_the_other_found() -> None:
    whole = sides()
    with parallel.shared(whole) as shared:
        if shared is whole:  # a machine with one processor
            return
        expected = outcome(run.of(whole))
        other = parallel.SecondProcess(whole)
        clean = other.clean(wait=True)
        other.end()
        assert clean is not None
        assert [len(digests) for digests in clean.values()] == [MANY - 9]
        cached = replace(whole.head, cached=CachedResults(clean=clean))
        assert outcome(run.of(whole.with_head(cached))) == expected
        assert outcome(run.of(shared)) == expected


def an_other_that_was_killed() -> None:
    other = parallel.SecondProcess(sides())
    os.kill(other.pid, signal.SIGKILL)
    assert other.clean(wait=True) is None
    other.end()
    with pytest.raises(ChildProcessError):
        os.waitpid(other.pid, 0)


def what_is_asked_of_an_other_that_was_ended() -> None:
    whole = sides()
    other = parallel.SecondProcess(whole)
    other.end()
    assert other.clean() is None
    with parallel.shared(whole) as shared:
        pass
    # as --fix does, after the first check
    assert outcome(run.of(shared)) == outcome(run.of(whole))


def an_other_whose_work_fails() -> None:
    other = parallel.SecondProcess(replace(sides(), clusters=("there-is-none",)))
    assert other.clean(wait=True) is None
    other.end()


def where_it_is_not_worth_it() -> None:
    for one in (
        CheckInput(SourceTree(None, dict(list(files().items())[:100])), None, {}),
        replace(sides(), base=SourceTree(None, {})),
        sides(cached=CachedResults({"a": b"b"})),
        sides(consumed=frozenset([PurePosixPath("000.yaml")])),
    ):
        with parallel.shared(one) as same:
            assert same is one


@pytest.mark.slow
@pytest.mark.parametrize(
    "scene",
    [
        what_the_other_found,
        an_other_that_was_killed,
        what_is_asked_of_an_other_that_was_ended,
        an_other_whose_work_fails,
        where_it_is_not_worth_it,
    ],
)
def test_in_a_process_of_its_own(alone: Callable[..., Any], scene: Callable[[], None]) -> None:
    alone(scene)


def report(directory: Path, processors: set[int], cache: Path, *more: str) -> dict[str, Any]:
    done = subprocess.run(
        (PROGRAM, "check", "-o", "json", *more, directory),
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "GITOPS_DS_CACHE_KEY": "a"},
        preexec_fn=lambda: os.sched_setaffinity(0, processors),
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.system
def test_the_report_is_the_same_with_one_processor_and_with_all(tmp_path: Path) -> None:
    directory = tmp_path / "repo"
    directory.mkdir()
    for path, data in files().items():
        (directory / path).write_bytes(data)
    every = os.sched_getaffinity(0)
    one = report(directory, {min(every)}, tmp_path / "none", "--no-cache")
    assert len(one["findings"]) >= 9
    assert report(directory, every, tmp_path / "none", "--no-cache") == one
    # What the other process found is kept for the next run as well.
    assert report(directory, every, tmp_path / "cache") == one
    (directory / "000.yaml").write_bytes(manifest(0, "2.0.0"))
    (directory / "449.yaml").write_bytes(manifest(449, "2.0.0"))
    assert report(directory, every, tmp_path / "cache")["findings"] == one["findings"]
