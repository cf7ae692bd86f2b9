"""The cached report of the last check: a repository without changes is not checked again.

The entry is sealed like those of `result_cache`. A repository has one entry, the last.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gitops_ds.commands.check import result_cache
from gitops_ds.commands.check.result_cache import ResultCache
from gitops_ds.model.sources.source_tree import SourceTree
from gitops_ds.model.values import replace
from gitops_ds.redaction.report import ReportSecrets
from gitops_ds.renderers import disk_cache
from gitops_ds.report.findings import Report

# The packages that a report depends on.
_PACKAGES: Final = (
    "apimachinery",
    "checks",
    "cli",
    "commands",
    "git",
    "model",
    "pipeline",
    "plan",
    "redaction",
    "render",
    "renderers",
    "report",
    "schemas",
    "yaml",
)
_MOST_BYTES: Final = 16 * 1024 * 1024
_NO_SECRETS: Final = ReportSecrets()


class CachedReport(msgspec.Struct, frozen=True):
    """The report of a work tree; `inputs` are all inputs of the report other than the files,
    including the date.
    """

    cache: ResultCache
    inputs: tuple[str, ...]
    work_tree: SourceTree

    def load(self) -> Report | None:
        """The report of an earlier check with the same inputs and files; None if not cached."""
        data = disk_cache.read(self.cache.directory, self._name, self.cache.secret)
        if data is None or not data.startswith(self._state):
            return None
        return replace(
            msgspec.json.decode(data[len(self._state) :], type=Report), files=_files(self.work_tree)
        )

    def save(self, report: Report, tree: SourceTree) -> None:
        """Caches the report if it depends only on the files of `tree` and JSON preserves it."""
        if (
            len(tree.files) < self.cache.few
            or tree.expanded
            or tree.charts
            or tree.consumed
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
                self.cache.directory, self._name, [self._state, data], self.cache.secret
            )

    @property
    def _name(self) -> str:
        return disk_cache.key("report", self.cache.name)

    @property
    def _state(self) -> bytes:
        files = (part for path, data in self.work_tree.files.items() for part in (str(path), data))
        return disk_cache.key(
            result_cache.version(_PACKAGES), repr((self.inputs, self.work_tree.findings)), *files
        ).encode()


def _files(snapshot: SourceTree) -> dict[str, bytes]:
    return {path.as_posix(): data for path, data in snapshot.files.items()}
