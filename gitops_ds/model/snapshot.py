"""One commit of a repository, as values: no checkout, no file system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath

from gitops_ds.model.cached_results import NOTHING, CachedResults
from gitops_ds.model.chart import Places, RenderedChart
from gitops_ds.model.finding import Finding
from gitops_ds.model.objects import CommitId

# The content of files by path.
Files = Mapping[PurePosixPath, bytes]


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """What Git says of a commit."""

    id: CommitId
    parents: tuple[CommitId, ...]
    committed: datetime
    author: str
    subject: str


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The files of one commit under the wanted path (names relative to it), and what could not be
    taken. Each is only itself.

    `commit` is None for a work tree as it stands. `findings` name symlinks, submodules and other
    entries that are refused. `expanded` holds, for a directory with a kustomization.yaml, the plain
    manifests that kustomize made of it, and `placed` by the number of the document where its values
    were written; `charts` holds, by its source.yaml, what helm made of a chart. The files that
    these were taken from are in `consumed` and are not read again. `known` is what needs no second
    look.
    """

    commit: CommitInfo | None
    files: Files
    findings: tuple[Finding, ...] = ()
    expanded: Files = field(default_factory=dict)
    consumed: frozenset[PurePosixPath] = frozenset()
    placed: Mapping[PurePosixPath, Mapping[int, Places]] = field(default_factory=dict)
    charts: Mapping[PurePosixPath, RenderedChart] = field(default_factory=dict)
    known: CachedResults = NOTHING
