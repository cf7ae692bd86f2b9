"""The whole report of a check, kept for the next one: a repository in which nothing changed is
read, and not judged again.

It is sealed as what `remembering` keeps. A repository has one, the last: whoever asks otherwise in
turns is answered from scratch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import msgspec

from gitops_ds.commands.check import result_cache
from gitops_ds.commands.check.result_cache import ResultCache
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.redaction.report import ReportSecrets
from gitops_ds.renderers import disk_cache
from gitops_ds.report.findings import Report

# What a report hangs on beside the files and what was asked.
_TELLERS: Final = (
    "app",
    "cli",
    "kinds",
    "model",
    "pipeline",
    "render",
    "report",
    "schemas",
    "source",
    "validate",
)
_MOST_BYTES: Final = 16 * 1024 * 1024
_NO_SECRETS: Final = ReportSecrets()


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked of which files: `words` are all that a report hangs on beside them, the day
    too.
    """

    memory: ResultCache
    words: tuple[str, ...]
    standing: Snapshot

    def answer(self) -> Report | None:
        """The report of an earlier check of the same; None where there is none."""
        data = disk_cache.read(self.memory.directory, self._name, self.memory.secret)
        if data is None or not data.startswith(self._state):
            return None
        return replace(
            msgspec.json.decode(data[len(self._state) :], type=Report), files=_files(self.standing)
        )

    def keep(self, report: Report, seen: Snapshot) -> None:
        """Keeps the report of what was seen, where its files are all that it was made of, and JSON
        gives it back as it is.
        """
        if (
            len(seen.files) < self.memory.few
            or seen.expanded
            or seen.charts
            or seen.consumed
            or report.hidden != _NO_SECRETS
        ):
            return
        bare = replace(report, files={})
        try:
            data = msgspec.json.encode(bare)
            is_kept = len(data) <= _MOST_BYTES and msgspec.json.decode(data, type=Report) == bare
        except (
            TypeError,
            ValueError,
            msgspec.MsgspecError,
        ):  # a `Member` of a list, half a surrogate pair
            return
        if is_kept:
            disk_cache.write(
                self.memory.directory, self._name, [self._state, data], self.memory.secret
            )

    @property
    def _name(self) -> str:
        return disk_cache.key("report", self.memory.name)

    @property
    def _state(self) -> bytes:
        files = (part for path, data in self.standing.files.items() for part in (str(path), data))
        return disk_cache.key(
            result_cache.version(_TELLERS), repr((self.words, self.standing.findings)), *files
        ).encode()


def _files(snapshot: Snapshot) -> dict[str, bytes]:
    return {path.as_posix(): data for path, data in snapshot.files.items()}
