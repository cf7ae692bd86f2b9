"""One commit of a repository, as values: no checkout, no file system."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePosixPath

import msgspec

from gitops_ds.model.finding import Finding
from gitops_ds.model.objects import CommitId
from gitops_ds.model.sources.cached_results import NOTHING, CachedResults
from gitops_ds.model.sources.chart import Places, RenderedChart

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
    cached: CachedResults = NOTHING
