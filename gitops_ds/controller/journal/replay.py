"""Repeats the decisions of a journal with this version, and reports differences."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gitops_ds.apimachinery import timestamps
from gitops_ds.controller.journal import codec, files
from gitops_ds.daemonset import decide
from gitops_ds.errors import UsageError
from gitops_ds.model import names, objects
from gitops_ds.model.decision import Action, CreatePod, Decision, Observation
from gitops_ds.model.events.base import Decided
from gitops_ds.model.objects import Key, show_path
from gitops_ds.model.rollouts.staged_turn import outcome_of
from gitops_ds.redaction import objects as redaction_objects
from gitops_ds.rollouts import stage_inputs

NOTHING = "nothing"
LONGEST = 200  # characters of a value that is shown
_ABSENT = object()


class DecisionDifference(msgspec.Struct, frozen=True):
    """A difference of two decisions: the former and the present value, each `nothing` if it is
    missing.
    """

    file: str
    line: int
    at: float
    daemonset: Key
    then: str
    now: str

    def __str__(self) -> str:
        """One line of text."""
        return (
            f"{self.file}:{self.line}: {timestamps.text(self.at)} {self.daemonset}: then "
            f"{self.then}; now {self.now}"
        )


class Unread(msgspec.Struct, frozen=True):
    """An unreadable line; `torn` is the end of a file whose writer was killed, or whose disk was
    full.
    """

    file: str
    line: int
    message: str
    torn: bool = False

    def __str__(self) -> str:
        """One line of text."""
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(slots=True)
class Replay:
    """The result of a replay. `turns` counts the repeated reconciliations."""

    files: int = 0
    turns: int = 0
    differences: list[DecisionDifference] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether all decisions are the same; a torn last line is permitted."""
        return not self.differences and all(unread.torn for unread in self.unread)

    def __str__(self) -> str:
        """The summary as text."""
        summary = (
            f"{_count(self.turns, 'turn')} in {_count(self.files, 'file')}: "
            f"{_count(len(self.differences), 'difference')}"
        )
        return f"{summary}, {_count(len(self.unread), 'line')} not read" if self.unread else summary


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


Decide = Callable[[Observation], Decision]


def replay(journal: Path, decide: Decide = decide.decide) -> Replay:
    """Repeats all decisions of a file, or of the files of a directory. Raises UsageError without a
    journal.
    """
    result = Replay()
    for file in _files(journal):
        result.files += 1
        for read in turns(file):
            if isinstance(read, Unread):
                result.unread.append(read)
                continue
            number, turn = read
            result.turns += 1
            for then, now in _differences(turn, decide):
                result.differences.append(
                    DecisionDifference(str(file), number, turn.at, turn.daemonset, then, now)
                )
    return result


def _differences(turn: Decided, decide: Decide) -> Iterator[tuple[str, str]]:
    if turn.staged is None:
        yield from compare(turn.decision, decide(turn.seen))
        return
    staged = stage_inputs.repeated(turn.seen, turn.staged)
    if staged is None:
        yield "a staged rollout", NOTHING
        return
    yield from compare(turn.decision, staged.decision)
    then, now = _plain(turn.staged.outcome), _plain(outcome_of(staged.stages))
    for path, was, is_ in _fields(then, now, ("stages",)):
        yield f"{show_path(path)} {_shown(was)}", _shown(is_)


def _files(journal: Path) -> list[Path]:
    paths = files.files(journal) if journal.is_dir() else [journal]
    if not paths or not all(file.is_file() for file in paths):
        raise UsageError(f"{journal}: no journal; name a file, or a directory with {files.PATTERN}")
    return paths


def turns(file: Path) -> Iterator[tuple[int, Decided] | Unread]:
    """The reconciliations of a file with their line numbers; it ends at a line that can't be read,
    since later ones depend on it.
    """
    reader, number = codec.Reader(), 1
    try:
        with file.open("rb") as opened:
            for number, line in enumerate(opened, start=1):
                if not line.endswith(b"\n"):
                    yield Unread(
                        str(file),
                        number,
                        "the line has no end: its writer was killed, or the disk was full",
                        torn=True,
                    )
                elif number > 1:
                    yield number, reader.turn(line)
                elif not codec.is_head(line):
                    raise codec.Broken("the file is not a journal of gitops-ds")
    except codec.Broken as error:
        yield Unread(str(file), number, f"{error}; nothing after it is replayed")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None


def compare(then: Decision, now: Decision) -> Iterator[tuple[str, str]]:
    """The differences of two decisions; a value that one of them lacks is `nothing`."""
    old, new = (_plain(decision) for decision in (then, now))
    if old == new:
        return
    before, after = (_by_subject(decision.actions) for decision in (then, now))
    alike = before.keys() == after.keys()
    for subject in [*before, *(subject for subject in after if subject not in before)]:
        one, other = before.get(subject), after.get(subject)
        if one is None or other is None:
            yield (subject, NOTHING) if one is not None else (NOTHING, subject)
        else:
            for path, was, is_ in _fields(_plain(one), _plain(other), ()):
                alike = False
                yield f"{subject}, {show_path(path)} {_shown(was)}", f"{_shown(is_)}"
    for part in ("status", "wake_after", "backoffs", "complaint"):
        if old[part] != new[part]:
            alike = False
            yield f"{part} {_shown(old[part])}", _shown(new[part])
    if alike:
        yield "the same actions", "in another order"


def _plain(value: Any) -> Any:
    """As JSON, in which a list equals a tuple."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _by_subject(actions: Iterable[Action]) -> dict[str, Action]:
    """The actions by kind and target, which are unique."""
    return {_subject(action): action for action in actions}


def _subject(action: Action) -> str:
    on = (
        f"on {action.node}"
        if isinstance(action, CreatePod)
        else f"{action.key} ({getattr(action, 'uid', '') or 'new'})"
    )
    return f"{type(action).__name__} {on}"


def _fields(old: Any, new: Any, path: objects.Path) -> Iterator[tuple[objects.Path, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _fields(old.get(key, _ABSENT), new.get(key, _ABSENT), (*path, key))
    elif isinstance(old, list) and isinstance(new, list) and old != new:
        lost, won = (
            [item for item in old if item not in new],
            [item for item in new if item not in old],
        )
        yield (path, lost, won) if lost or won else (path, old, new)
    elif old != new:
        yield path, old, new


def _shown(value: Any) -> str:
    """A short form of a value, without secrets."""
    if value is _ABSENT or value is None:
        return NOTHING
    text = json.dumps(redaction_objects.value(value))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def as_json(replay: Replay) -> dict[str, Any]:
    """The report of docs/reference/json.md."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Replay",
        "summary": {
            "files": replay.files,
            "turns": replay.turns,
            "differences": len(replay.differences),
            "unread": len(replay.unread),
        },
        "differences": [
            {
                "file": d.file,
                "line": d.line,
                "time": timestamps.text(d.at),
                "object": str(d.daemonset),
                "then": d.then,
                "now": d.now,
            }
            for d in replay.differences
        ],
        "unread": [
            {"file": u.file, "line": u.line, "message": u.message, "torn": u.torn}
            for u in replay.unread
        ],
    }
