"""The journal on disk: bounded, each file whole in itself, and no failure stops the controller."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gitops_ds.controller.journal import codec, files, replay
from gitops_ds.controller.journal.files import Journal, JournalLimits
from gitops_ds.model.events.base import (
    Decided,
    Event,
    JournalFailed,
    JournalRecovered,
    Listed,
)
from gitops_ds.model.objects import POD
from gitops_ds.model.values import replace
from gitops_ds.settings import service
from tests.journal import story

ROOT = Path(__file__).resolve().parents[2]
WIDE = JournalLimits()


@pytest.fixture(scope="module")
def events() -> list[Decided]:
    return story.events()


def write(directory: Path, events: Sequence[Event], limits: JournalLimits = WIDE) -> list[Event]:
    """Writes them as one process; returns the troubles."""
    troubles: list[Event] = []
    journal = Journal(directory, limits, troubles.append)
    for record in events:
        journal.handle(record)
    journal.close()
    return troubles


def later(events: Sequence[Decided], seconds: float) -> list[Decided]:
    return [replace(record, at=record.at + seconds) for record in events]


def size(directory: Path, events: Sequence[Decided]) -> int:
    """Of them all in one file."""
    write(directory, events)
    (file,) = files.files(directory)
    return file.stat().st_size


def test_only_turns_are_written_and_only_their_owner_may_read_them(
    tmp_path: Path, events: list[Decided]
) -> None:
    directory = tmp_path / "far" / "journal"
    assert write(directory, [Listed(events[0].at, POD, 3, "7"), *events[:3]]) == []
    (file,) = files.files(directory)
    assert len(file.read_bytes().splitlines()) == 4
    assert (directory.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_the_settings_name_the_directory_and_the_limits() -> None:
    parsed = service.parse({"journal": {"path": "/var/lib/gitops-ds", "days": 2}}).journal
    assert (parsed.path, parsed.limits) == (
        "/var/lib/gitops-ds",
        JournalLimits(bytes=WIDE.bytes, days=2),
    )
    assert service.Service().journal.path == ""


def test_every_process_begins_a_file_and_leaves_the_torn_one_alone(
    tmp_path: Path, events: list[Decided]
) -> None:
    write(tmp_path, events[:20])
    (first,) = files.files(tmp_path)
    first.write_bytes(first.read_bytes()[:-5])
    write(tmp_path, events[20:])
    result = replay.replay(tmp_path)
    assert [unread.torn for unread in result.unread] == [True]
    assert (result.files, result.turns, result.agrees) == (2, len(events) - 1, True)


def test_a_full_file_is_followed_by_another_and_each_replays_alone(
    tmp_path: Path, events: list[Decided]
) -> None:
    limit = 3 * size(tmp_path / "whole", events)
    write(tmp_path, events, JournalLimits(bytes=limit))
    several = files.files(tmp_path)
    assert len(several) >= 2
    assert [replay.replay(file).agrees for file in several] == [True] * len(several)
    assert sum(replay.replay(file).turns for file in several) == len(events)
    assert max(file.stat().st_size for file in several) < limit / files.SHARES + 15_000


def test_the_configured_amount_is_kept_and_the_newest_stays(
    tmp_path: Path, events: list[Decided]
) -> None:
    several: list[Path] = []
    limit = size(tmp_path / "whole", events)
    for round in range(5):
        write(tmp_path, later(events, 1000.0 * round), JournalLimits(bytes=limit))
        several = files.files(tmp_path)
        assert limit / 2 < sum(file.stat().st_size for file in several) <= limit
    last = [read for read in replay.turns(several[-1]) if not isinstance(read, replay.Unread)]
    assert last[-1][1].at == events[-1].at + 4000.0
    assert replay.replay(tmp_path).agrees


def test_many_small_files_are_bounded_too(tmp_path: Path, events: list[Decided]) -> None:
    for _ in range(files.MOST_FILES + 5):
        write(tmp_path, events[:1])
    numbers = [file.name for file in files.files(tmp_path)]
    assert len(numbers) == files.MOST_FILES
    assert numbers[-1] == "journal-000105.jsonl"


def test_a_limit_below_one_line_still_keeps_the_file_being_written(
    tmp_path: Path, events: list[Decided]
) -> None:
    assert write(tmp_path, events, JournalLimits(bytes=1)) == []
    (only,) = files.files(tmp_path)
    assert replay.replay(only).turns >= 1


def test_old_files_are_deleted_and_a_new_day_or_a_clock_set_back_ends_a_file(
    tmp_path: Path, events: list[Decided]
) -> None:
    at = events[0].at
    moments = (at, at + files.DAY - 1, at + files.DAY, at)
    write(tmp_path, [replace(events[0], at=moment) for moment in moments])
    assert [replay.replay(file).turns for file in files.files(tmp_path)] == [2, 1, 1]
    newest = files.files(tmp_path)[-1]
    # The age of the files is by the clock of this machine.
    write(tmp_path, [replace(events[0], at=newest.stat().st_mtime + 7 * files.DAY - 100)])
    assert len(files.files(tmp_path)) == 4
    write(tmp_path, [replace(events[0], at=newest.stat().st_mtime + 7 * files.DAY + 100)])
    assert [replay.replay(file).turns for file in files.files(tmp_path)] == [1]


def test_a_number_that_another_process_takes_is_skipped(
    tmp_path: Path, events: list[Decided]
) -> None:
    (tmp_path / "journal-000007.jsonl").write_bytes(codec.head())
    (tmp_path / "journal-mine.jsonl").write_text("a note")
    write(tmp_path, events[:1])
    assert {file.name for file in files.files(tmp_path)} >= {
        "journal-000007.jsonl",
        "journal-000008.jsonl",
        "journal-mine.jsonl",
    }


def test_an_unwritable_directory_is_reported_once_until_it_can_be_written(
    tmp_path: Path, events: list[Decided]
) -> None:
    place, troubles = tmp_path / "journal", list[Event]()
    place.write_text("a file is in the way")
    journal = Journal(place, JournalLimits(), troubles.append)
    for second in range(100):
        journal.handle(replace(events[0], at=second))
    assert troubles == [JournalFailed(0, f"{place}: File exists")]
    place.unlink()
    for second in range(100, 140):
        journal.handle(replace(events[0], at=second))
    journal.close()
    # Tried at 0, 30, 60, 90 and 120.
    assert troubles[1:] == [JournalRecovered(120, 120)]
    assert replay.replay(place).turns == 20
    place.rename(tmp_path / "elsewhere")


def test_a_clock_set_back_does_not_stop_the_journal(tmp_path: Path, events: list[Decided]) -> None:
    place, troubles = tmp_path / "journal", list[Event]()
    place.write_text("a file is in the way")
    journal = Journal(place, JournalLimits(), troubles.append)
    journal.handle(replace(events[0], at=1_000_000.0))
    place.unlink()
    journal.handle(replace(events[0], at=5.0))
    journal.close()
    assert troubles[1:] == [JournalRecovered(5.0, 1)]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from gitops_ds.controller.journal.files import Journal, JournalLimits
from tests.journal import story

def allow(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def trouble(record):
    print(record.definition.kind, getattr(record, "missing", ""))
    if record.definition.kind == "JournalFailed":
        allow(100)

events = story.events()
journal = Journal(Path(sys.argv[1]), JournalLimits(), trouble)
allow(40_000)
for number, record in enumerate(events):
    if number == len(events) - 10:
        allow(resource.RLIM_INFINITY)
    journal.handle(record)
"""


def test_a_full_disk_leaves_a_torn_line_and_the_next_file_is_whole(
    tmp_path: Path, events: list[Decided]
) -> None:
    """The limit of the process on a file's size represents the disk's: a write stores a part, then
    fails.
    """
    run = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    failed, mended = run.stdout.splitlines()
    assert failed.split() == ["JournalFailed"]
    result = replay.replay(tmp_path)
    assert (result.files, result.agrees, len(result.unread)) == (2, True, 1)
    assert mended.split() == ["JournalMended", str(len(events) - result.turns)]
