"""The files of a commit that are read: those that can be referenced. The size of other files is not
limited.

First manifests, files of our format, and files in the folders of agents and charts; then files that
kustomizations and agents reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from gitops_ds.git import tree
from gitops_ds.git.tree import Sifted, TreeEntry
from gitops_ds.model.finding import Finding, Severity
from gitops_ds.model.sources.repository_limits import RepositoryLimits
from gitops_ds.render import kustomization
from gitops_ds.sandbox import memory
from gitops_ds.yaml.provenance.lookup import KUSTOMIZATIONS

NamedEntry = tuple[PurePosixPath, TreeEntry]
# A selection by path, before any content is read.
FileChoice = Callable[[Sequence[NamedEntry]], Iterable[NamedEntry]]

_IGNORE: Final = ".gitopsdsignore"
_SETTINGS: Final = "gitops-ds.yaml"


def manifests(candidates: Sequence[NamedEntry]) -> Iterator[NamedEntry]:
    """Files that are manifests by their name, or in an agent or a chart."""
    charts = {path.parent for path, _ in candidates if path.name == "Chart.yaml"}
    for path, entry in candidates:
        of_agent = len(path.parts) > 2 and path.parts[0] == "agents"
        by_name = tree.is_read(entry.name) or path.name in (*KUSTOMIZATIONS, _IGNORE)
        if of_agent or by_name or (charts and not charts.isdisjoint(path.parents)):
            yield path, entry


def names_only(candidates: Sequence[NamedEntry]) -> Iterator[NamedEntry]:
    """The files with the name of the repository and its clusters."""
    for path, entry in candidates:
        if str(path) in (_SETTINGS, _IGNORE) or (
            len(path.parts) == 2 and path.parts[0] == "clusters" and path.suffix == ".yaml"
        ):
            yield path, entry


def files(
    sifted: Sifted,
    limits: RepositoryLimits,
    read: Callable[[Sequence[NamedEntry]], dict[PurePosixPath, bytes]],
    choice: FileChoice = manifests,
) -> tuple[dict[PurePosixPath, bytes], tuple[Finding, ...]]:
    """The files that are read, and the findings; no files if they exceed the limits of number or
    size.
    """
    first = list(choice(sifted.files))
    if (finding := _too_much(first, limits)) is not None:
        return {}, (*sifted.findings, finding)
    contents = read(first)
    if choice is not manifests:
        return contents, sifted.findings
    missing = [named for named in sifted.files if named[0] not in contents]
    second = _named_by(contents, missing) if missing else []
    if (finding := _too_much([*first, *second], limits)) is not None:
        return {}, (*sifted.findings, finding)
    return (contents | read(second) if second else contents), sifted.findings


def _named_by(
    contents: Mapping[PurePosixPath, bytes], candidates: Sequence[NamedEntry]
) -> list[NamedEntry]:
    """Files that kustomizations reference, and the archives of charts in an agent's source.yaml."""
    named = set(kustomization.named_files(contents))
    archives = {path: entry for path, entry in candidates if path.suffix == ".tgz"}
    sources = (
        [data for path, data in contents.items() if path.name == "source.yaml"] if archives else []
    )
    named |= {path for path in archives if any(path.name.encode() in data for data in sources)}
    return [(path, entry) for path, entry in candidates if path in named]


def _too_much(entries: Sequence[NamedEntry], limits: RepositoryLimits) -> Finding | None:
    most = memory.here().snapshot if limits.snapshot_bytes is None else limits.snapshot_bytes
    total = sum(entry.size for _, entry in entries)
    if len(entries) <= limits.files and total <= most:
        return None
    largest = max(entries, key=lambda named: named[1].size)
    message = (
        f"{len(entries):,} files with {total:,} bytes are more than the {limits.files:,} files or "
        f"{most:,} bytes that are read "
        f"(the largest is {tree.shown(largest[1].name)} with {largest[1].size:,}); name a smaller "
        "directory (repository.path) or "
        "raise repository.limits"
    )
    return Finding("SRC005", Severity.ERROR, message, refused=True)
