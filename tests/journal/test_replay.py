"""A replay agrees with the recorded decisions, and reports exactly the ones that differ."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gitops_ds import cli
from gitops_ds.controller.journal import replay
from gitops_ds.controller.journal.files import Journal, JournalLimits
from gitops_ds.daemonset import decide
from gitops_ds.errors import UsageError
from gitops_ds.model.decision import Decision, Observation
from gitops_ds.model.events.base import Decided, Event
from tests.journal import story

RECORDED = Path(__file__).parent / "journals"


@pytest.fixture(scope="module")
def events() -> list[Decided]:
    return story.events()


@pytest.fixture
def journal(tmp_path: Path, events: list[Decided]) -> Path:
    """The story's journal: one file."""
    troubles: list[Event] = []
    written = Journal(tmp_path / "journal", JournalLimits(), troubles.append)
    for record in events:
        written.handle(record)
    written.close()
    assert troubles == []
    (file,) = (tmp_path / "journal").iterdir()
    return file


def replayed(*words: str) -> Result:
    return CliRunner().invoke(cli.cli, ["replay", *words], standalone_mode=False)


def test_a_run_replays_without_a_difference(events: list[Decided], journal: Path) -> None:
    result = replay.replay(journal)
    assert result.agrees
    assert str(result) == f"{len(events)} turns in 1 file: no differences"
    kinds = {type(action).__name__ for record in events for action in record.decision.actions}
    assert kinds >= {"CreatePod", "DeletePod", "CreateRevision", "RenumberRevision"}
    assert {record.decision.wake_after is None for record in events} == {True, False}
    assert any(record.decision.backoffs for record in events)
    assert any(not record.wants for record in events)


def test_the_reconciliations_are_read_as_they_were(events: list[Decided], journal: Path) -> None:
    read = [turn for turn in replay.turns(journal) if not isinstance(turn, replay.Unread)]
    assert [record.seen for _, record in read] == [record.seen for record in events]
    assert [number for number, _ in read] == list(range(2, len(events) + 2))


def test_recorded_journals_agree(journal: Path) -> None:
    """The decisions of an earlier version. An intended change is explained in its commit, which
    records the story again.
    """
    if os.environ.get("UPDATE_GOLDENS") == "1":
        shutil.copyfile(journal, RECORDED / "journal-000001.jsonl")
    result = replay.replay(RECORDED)
    assert list(map(str, [*result.differences, *result.unread])) == []
    assert result.turns > 50


def changed(journal: Path, test: Callable[[Any], bool], change: Callable[[Any], None]) -> int:
    """Changes what was decided in the first line that passes the test; returns its number."""
    lines = journal.read_text().splitlines(keepends=True)
    for index, text in enumerate(lines[1:], start=1):
        line = json.loads(text)
        if test(line["decided"]):
            change(line["decided"])
            lines[index] = json.dumps(line) + "\n"
            journal.write_text("".join(lines))
            return index + 1
    raise AssertionError("no such line")


def actions(decided: Any) -> Iterator[Any]:
    for step in decided["steps"]:
        yield from step


def has(kind: str) -> Callable[[Any], bool]:
    return lambda decided: any(action["do"] == kind for action in actions(decided))


def drop(kind: str) -> Callable[[Any], None]:
    def change(decided: Any) -> None:
        first = next(action for action in actions(decided) if action["do"] == kind)
        decided["steps"] = [
            [action for action in step if action is not first] for step in decided["steps"]
        ]

    return change


def another(kind: str, field: str, value: Any) -> Callable[[Any], None]:
    def change(decided: Any) -> None:
        next(action for action in actions(decided) if action["do"] == kind)[field] = value

    return change


@pytest.mark.parametrize(
    ("test", "change", "then", "now"),
    [
        (has("DeletePod"), drop("DeletePod"), "nothing", "DeletePod Pod default/agent-"),
        (
            has("CreateRevision"),
            another("CreateRevision", "why", "so"),
            "CreateRevision ControllerRevision default/agent-",
            '"the template',
        ),
        (
            lambda d: d["status"],
            lambda d: d.update(status=None),
            "status nothing",
            '{"counts": {"desired": 4, "current": 0',
        ),
        (lambda d: d["wakeAfter"], lambda d: d.update(wakeAfter=None), "wake_after nothing", ""),
        (lambda d: d["backoffs"], lambda d: d.update(backoffs={}), "backoffs {}", '{"node-1"'),
        (lambda d: True, lambda d: d.update(complaint="no"), 'complaint "no"', '""'),
    ],
)
def test_one_altered_decision_is_reported_at_its_line(
    journal: Path, test: Callable[[Any], bool], change: Callable[[Any], None], then: str, now: str
) -> None:
    number = changed(journal, test, change)
    done = replayed(str(journal))
    assert done.return_value == 1
    first, summary = done.stdout.splitlines()
    assert first.startswith(f"{journal}:{number}: 2026-01-01T00:0")
    assert "DaemonSet default/agent: then " in first
    (difference,) = replay.replay(journal).differences
    assert difference.then.startswith(then)
    assert difference.now.startswith(now)
    assert summary.endswith("1 difference")


def test_the_first_pod_of_a_decision_in_another_body_is_reported_with_its_path(
    journal: Path,
) -> None:
    """Bodies of later pods are kept as differences to the first, so one change shows in all."""

    def change(decided: Any) -> None:
        body = next(action for action in actions(decided) if action["do"] == "CreatePod")["body"]
        body["put"]["spec"]["tolerations"].pop()

    changed(journal, has("CreatePod"), change)
    differences = replay.replay(journal).differences
    assert [d.then.partition(" [")[0] for d in differences] == [
        f"CreatePod on node-{i}, body.spec.tolerations" for i in range(4)
    ]
    assert all(d.now.startswith('[{"key": "node.kubernetes.io/unschedulable"') for d in differences)


def test_another_order_is_a_difference(journal: Path) -> None:
    def swap(decided: Any) -> None:
        for step in decided["steps"]:
            step.sort(
                key=lambda action: action["node"] if action["do"] == "DeletePod" else "",
                reverse=True,
            )

    changed(journal, lambda d: sum(action["do"] == "DeletePod" for action in actions(d)) > 1, swap)
    (difference,) = replay.replay(journal).differences
    assert (difference.then, difference.now) == ("the same actions", "in another order")


def test_another_version_of_the_program_is_compared(journal: Path) -> None:
    def lazy(seen: Observation) -> Decision:
        decision = decide.decide(seen)
        return decision if len(seen.nodes) > 4 else Decision(status=decision.status)

    result = replay.replay(journal, lazy)
    assert {d.now for d in result.differences} == {"nothing"}
    assert any(d.then == "CreatePod on node-3" for d in result.differences)


def test_values_that_look_secret_are_not_shown(journal: Path) -> None:
    def change(decided: Any) -> None:
        action = next(action for action in actions(decided) if action["do"] == "CreateRevision")
        container = action["body"]["data"]["spec"]["template"]["spec"]["containers"][0]
        container["env"] = [{"name": "API_TOKEN", "value": "hunter2"}]
        container["image"] = "a"

    changed(journal, has("CreateRevision"), change)
    assert "API_TOKEN" in replayed(str(journal)).stdout
    assert "hunter2" not in replayed(str(journal)).stdout


def test_a_torn_last_line_is_reported_and_skipped(journal: Path, events: list[Decided]) -> None:
    journal.write_bytes(journal.read_bytes()[:-20])
    done = replayed(str(journal))
    assert done.return_value == 0
    assert done.stdout.splitlines() == [
        (
            f"{journal}:{len(events) + 1}: the line has no end: its writer was killed, or "
            "the disk was "
            "full"
        ),
        f"{len(events) - 1} turns in 1 file: no differences, 1 line not read",
    ]


def test_a_broken_line_is_reported_and_the_rest_of_the_file_is_skipped(journal: Path) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[9] = lines[9][:50] + b"\n"
    journal.write_bytes(b"".join(lines))
    done = replayed(str(journal))
    assert done.return_value == 1
    first, summary = done.stdout.splitlines()
    assert first.startswith(f"{journal}:10: ")
    assert first.endswith("nothing after it is replayed")
    assert summary.startswith("8 turns in 1 file: no differences")


@pytest.mark.parametrize("text", ["once upon a time\n", "{}\n", "\0\n", '{"kind": "Journal"}\n'])
def test_a_file_that_is_not_a_journal_is_reported(tmp_path: Path, text: str) -> None:
    file = tmp_path / "notes.txt"
    file.write_text(text)
    assert str(replay.replay(file).unread[0]).startswith(f"{file}:1: the file is not a journal")
    assert replayed(str(file)).return_value == 1


def test_a_place_without_a_journal_is_wrong_usage(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(
            UsageError, match="no journal; name a file, or a directory with journal-"
        ):
            replay.replay(place)


def test_the_json_has_the_keys_of_the_contract(journal: Path) -> None:
    changed(journal, has("DeletePod"), drop("DeletePod"))
    journal.write_bytes(journal.read_bytes()[:-1])
    report = json.loads(replayed(str(journal), "-o", "json").stdout)
    assert (report["apiVersion"], report["kind"]) == ("gitops-ds.io/v1", "Replay")
    assert report["summary"] == {
        "files": 1,
        "turns": report["summary"]["turns"],
        "differences": 1,
        "unread": 1,
    }
    (difference,), (unread,) = report["differences"], report["unread"]
    assert set(difference) == {"file", "line", "time", "object", "then", "now"}
    assert unread["torn"] is True
