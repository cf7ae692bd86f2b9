"""One commit of a repository, as values: no checkout, no file system. With the rendered charts, and
results of earlier runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from gitops_ds.core.finding import Finding
from gitops_ds.core.objects import CommitId, Digest, Path
from gitops_ds.core.sources.bundle import Pointer


class Remote(msgspec.Struct, frozen=True):
    """A chart in a repository of charts.

    `address` is `oci://HOST/PATH` (with the chart's name as its end) or the URL of a directory with
    an index.yaml, where `name` is the chart's. `digest` is `sha256:…` or empty: of the manifest for
    OCI, else of the archive.
    """

    address: str
    name: str
    version: str
    digest: str = ""


class Chart(msgspec.Struct, frozen=True):
    """The `helm:` part of a source.yaml.

    `where` is a directory or an archive of the snapshot, or a remote chart. `values` take
    precedence over those of `values_files`, of which the last takes precedence. For empty strings
    helm uses its defaults. A chart with a blocking finding must not be rendered.
    """

    file: PurePosixPath
    where: PurePosixPath | Remote
    release: str
    namespace: str = ""
    values: Mapping[str, Any] = msgspec.field(default_factory=dict)
    values_files: tuple[PurePosixPath, ...] = ()
    kube_version: str = ""
    api_versions: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


# The sources of the values of a document, by path: the pointer of `()` is that of the object. A
# path without a pointer has that of its nearest parent.
Places = Mapping[Path, tuple[Pointer, ...]]


class RenderedChart(msgspec.Struct, frozen=True):
    """The output of helm, and the sources of the values of each document, by its number."""

    data: bytes
    places: Mapping[int, Places]


class CachedResults(msgspec.Struct, frozen=True, eq=False):
    """Results of the same version of gitops-ds, which the caller ensures. Compared by identity.

    `files` has, by the sha256 of a file's bytes, its objects as `render.parsed_objects` encodes
    them, for files without findings. `clean` has, by the circumstances of a check
    (`checks.engine.check.circumstances`), the objects without findings.
    """

    files: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    clean: Mapping[str, Set[Digest]] = msgspec.field(default_factory=dict)


NO_RESULTS: Final = CachedResults()

# The content of files by path.
Files = Mapping[PurePosixPath, bytes]


class CommitInfo(msgspec.Struct, frozen=True):
    """The metadata of a commit."""

    id: CommitId
    parents: tuple[CommitId, ...]
    committed: datetime
    author: str
    subject: str


class SourceTree(msgspec.Struct, frozen=True, eq=False):
    """The files of one commit under the configured path (names relative to it), and the entries
    that could not be read. Compared by identity.

    `commit` is None for a work tree. `findings` name symlinks, submodules and other entries that
    are refused. `expanded` maps a directory with a kustomization.yaml to the output of kustomize,
    and `placed` to the sources of its values by document number; `charts` maps a source.yaml to the
    output of helm. The source files of both are in `consumed` and are not read again. `cached` are
    results of earlier runs.
    """

    commit: CommitInfo | None
    files: Files
    findings: tuple[Finding, ...] = ()
    expanded: Files = msgspec.field(default_factory=dict)
    consumed: frozenset[PurePosixPath] = frozenset()
    placed: Mapping[PurePosixPath, Mapping[int, Places]] = msgspec.field(default_factory=dict)
    charts: Mapping[PurePosixPath, RenderedChart] = msgspec.field(default_factory=dict)
    cached: CachedResults = NO_RESULTS
