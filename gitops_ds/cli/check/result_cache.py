"""Cached results of a check: unchanged files are neither parsed nor checked again; and the cached
report of the last check: a repository without changes is not checked again.

Write access to the cache would allow marking a bad file as good. So it is sealed with a secret
outside of the cache directory: one of this machine and user, or GITOPS_DS_CACHE_KEY. A cache from
another source, such as a pull request, is ignored. A repository has one report, the last.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Set
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import orjson

from gitops_ds.checks.report.findings import Report
from gitops_ds.core.objects import Digest
from gitops_ds.core.redaction.report import ReportSecrets
from gitops_ds.core.sources.source_tree import NO_RESULTS, CachedResults, SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.source.renderers import disk_cache

if TYPE_CHECKING:
    from gitops_ds.cli.check.model import CheckResult


# below this number of files, parsing is faster than the cache
_FEW: Final = 100
_MOST_BYTES: Final = 64 * 1024 * 1024
_SECRET_BYTES: Final = 32
_NAME: Final = 64  # characters of a hash
# the packages that the result of a file depends on
_JUDGES: Final = ("checks", "core", "kube/apimachinery", "schemas", "source/render", "yaml")
# the packages that a report depends on
_REPORT_JUDGES: Final = (
    "checks",
    "cli",
    "core",
    "deploy/pipeline",
    "deploy/plan",
    "kube/apimachinery",
    "ownership",
    "rollouts",
    "schemas",
    "source",
    "yaml",
)
_MOST_REPORT_BYTES: Final = 16 * 1024 * 1024
_NO_SECRETS: Final = ReportSecrets()


class ResultCache(msgspec.Struct, frozen=True):
    """The cache of a repository: its directory, its secret, and the minimum number of files."""

    directory: Path
    name: str
    secret: bytes
    few: int = _FEW

    @classmethod
    def of(cls, repository: open_repository.RepositoryRef) -> ResultCache | None:
        """The cache of a repository; None if no secret can be stored."""
        key = os.environ.get("GITOPS_DS_CACHE_KEY")
        secret = (
            hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
            if key
            else _own_secret()
        )
        name = disk_cache.key("check", repository.display, repository.path)
        return cls(open_repository.cache_directory("checks"), name, secret) if secret else None

    def load(self) -> CachedResults:
        """The cached results; empty if another version wrote them."""
        data = disk_cache.read(self.directory, self.name, self.secret)
        if data is None:
            return NO_RESULTS
        first, *lines = data.split(b"\n")
        header = orjson.loads(first)
        if header["version"] != version():
            return NO_RESULTS
        clean = {
            circumstances: frozenset(digests) for circumstances, digests in header["clean"].items()
        }
        return CachedResults({line[:_NAME].decode(): line[_NAME:] for line in lines}, clean)

    def save(self, results: CachedResults, checked: CheckResult) -> None:
        """Saves new results, and unused earlier results up to the same size."""
        from gitops_ds.source.render import bundle as rendering
        from gitops_ds.source.render import parsed_objects

        objects = rendering.objects(checked.snapshot)
        fresh = [path for path, object in objects.items() if parsed_objects.is_news(object)]
        clean = clean_in(checked)
        is_news = fresh or any(
            digests - results.clean.get(name, frozenset()) for name, digests in clean.items()
        )
        if len(objects) < self.few or not is_news:
            return
        names = {path: hashlib.sha256(checked.snapshot.files[path]).hexdigest() for path in objects}
        current = {name: results.files[name] for name in names.values() if name in results.files}
        size = _size(current, clean) + sum(len(checked.snapshot.files[path]) for path in fresh)
        if size > _MOST_BYTES:
            return
        if _size(results.files, results.clean) <= 2 * size <= _MOST_BYTES:
            current = {**results.files, **current}
            clean = {
                name: frozenset({*results.clean.get(name, ()), *clean.get(name, ())})
                for name in {**results.clean, **clean}
            }
        header = {
            "version": version(),
            "clean": {name: sorted(digests) for name, digests in clean.items()},
        }
        lines = chain(
            current.items(),
            (
                (names[path], line)
                for path in fresh
                if (line := parsed_objects.remember(objects[path]))
            ),
        )
        written = (b"\n" + name.encode() + line for name, line in lines)
        disk_cache.write(
            self.directory, self.name, chain([orjson.dumps(header)], written), self.secret
        )


def clean_in(checked: CheckResult) -> dict[str, frozenset[Digest]]:
    """`CachedResults.clean` of a check."""
    from gitops_ds.checks.engine import check

    clean: dict[str, frozenset[Digest]] = {}
    for cluster in checked.prepared:
        name = check.circumstances(cluster.bundle)
        clean[name] = clean.get(name, frozenset()) | cluster.clean
    return clean


def _size(files: Mapping[str, bytes], clean: Mapping[str, Set[Digest]]) -> int:
    return sum(map(len, files.values())) + _NAME * (len(files) + sum(map(len, clean.values())))


@cache  # `save` calls it again
def version(judges: tuple[str, ...] = _JUDGES) -> str:
    """A hash of the code, the schemas and the YAML parser: a version number does not identify code
    in development.
    """
    parts: list[str | bytes] = [sys.version, *_yaml()]
    for name in judges:
        for where, _, names in sorted(os.walk((Path(__file__).parents[3] / name).resolve())):
            for file in sorted(name for name in names if name.endswith((".py", ".json", ".gz"))):
                parts += [file, Path(where, file).read_bytes()]
    return disk_cache.key(*parts)


def _yaml() -> Iterator[bytes]:
    """The version of the YAML parser, without importing it."""
    for name in ("ruamel.yaml", "_ruamel_yaml"):
        spec = find_spec(name)
        if spec and spec.origin:
            yield Path(spec.origin).read_bytes()


def _own_secret() -> bytes | None:
    """A secret of this user on this machine, created if missing; None if it cannot be stored."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "gitops-ds"
    file = state / "cache-key"
    try:
        if not file.exists():
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, new = tempfile.mkstemp(prefix="new-", dir=state)
            with os.fdopen(handle, "wb") as written:
                written.write(secrets.token_bytes(_SECRET_BYTES))
            with contextlib.suppress(FileExistsError):  # another process was first
                Path(file).hardlink_to(new)
            Path(new).unlink()
        status = file.lstat()
        is_ours = (
            stat.S_ISREG(status.st_mode)
            and status.st_uid == os.geteuid()
            and not status.st_mode & 0o077
        )
        secret = file.read_bytes() if is_ours else b""
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return None
    return secret if len(secret) == _SECRET_BYTES else None


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
            is_kept = (
                len(data) <= _MOST_REPORT_BYTES and msgspec.json.decode(data, type=Report) == bare
            )
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
            version(_REPORT_JUDGES), repr((self.inputs, self.work_tree.findings)), *files
        ).encode()


def _files(snapshot: SourceTree) -> dict[str, bytes]:
    return {path.as_posix(): data for path, data in snapshot.files.items()}
