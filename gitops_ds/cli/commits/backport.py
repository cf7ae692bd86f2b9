"""Writes a template that exists only in the cluster to its source files, value by value, with
comments kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec

from gitops_ds.core.change import FieldChange
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import MISSING, CommitId, Key, ListMember, Path, value_at
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.kube.apimachinery import defaults
from gitops_ds.ownership import diff
from gitops_ds.source.render import bundle as rendering
from gitops_ds.yaml import edit as yaml_edit
from gitops_ds.yaml import parser
from gitops_ds.yaml.documents import Document
from gitops_ds.yaml.edit import Edit
from gitops_ds.yaml.provenance import lookup


class BackportOptions(msgspec.Struct, frozen=True):
    """The template to restore (None: that of the commit) and its commit (None: not recorded)."""

    key: Key
    target: CommitId | None
    template: Revision | None
    cluster: str = ""
    namespace: str = ""


def files(snapshot: SourceTree, options: BackportOptions) -> Mapping[PurePosixPath, bytes] | None:
    """The changed files; None if a difference is not a single value in one place."""
    manifest = rendering.render(
        snapshot, cluster=options.cluster, namespace=options.namespace
    ).manifests.get(options.key)
    if manifest is None or options.template is None:
        return None
    now = defaults.defaulted_template((manifest.body.get("spec") or {}).get("template") or {})
    return edited(
        snapshot,
        manifest,
        diff.compare(
            {"spec": {"template": now}}, {"spec": {"template": options.template.template}}
        ),
    )


def edited(
    snapshot: SourceTree, manifest: Manifest, changes: Iterable[FieldChange]
) -> Mapping[PurePosixPath, bytes] | None:
    """The files in which the manifest has the `new` values of these changes; None if a value has no
    single place.
    """
    edits: dict[PurePosixPath, list[Edit]] = defaultdict(list)
    for change in changes:
        new_edit = _edit(snapshot, manifest, change)
        if new_edit is None:
            return None
        file, edit = new_edit
        edits[file].append(edit)
    try:
        return {file: yaml_edit.apply(snapshot.files[file], some) for file, some in edits.items()}
    except ValueError:
        return None


def has_values(manifest: Manifest, changes: Iterable[FieldChange]) -> bool:
    """Whether the manifest has the `new` values of these changes."""
    for change in changes:
        path = _indices(manifest.body, change.path)
        current = MISSING if path is None else value_at(manifest.body, path)
        if (None if current is MISSING else current) != change.new:
            return False
    return True


def _edit(
    snapshot: SourceTree, manifest: Manifest, change: FieldChange
) -> tuple[PurePosixPath, Edit] | None:
    path = _indices(manifest.body, change.path)
    if path is None or isinstance(change.new, Mapping):
        return None
    pointer = lookup.pointers(manifest.origin, path)[0]
    file = PurePosixPath(pointer.file)
    if file not in snapshot.files or pointer.line:  # a line of a chart's template is not a value
        return None
    # Only a value that the file contains unchanged; one that is composed of parameters has no
    # single place.
    written = _at(
        parser.read(pointer.file, snapshot.files[file]).documents, pointer.document, pointer.path
    )
    rendered = value_at(manifest.body, path)
    if written is not MISSING and written != rendered:
        return None
    return file, Edit(pointer.document, pointer.path, change.new)


def _indices(body: Any, path: Path) -> Path | None:
    """The path with indices instead of the names of list members."""
    steps: list[str | int] = []
    for step in path:
        if isinstance(step, ListMember):
            at = next(
                (
                    i
                    for i, item in enumerate(body)
                    if isinstance(item, Mapping) and str(item.get("name")) == step
                ),
                None,
            )
            if at is None:
                return None
            steps.append(at)
            body = body[at]
        else:
            steps.append(step)
            body = body.get(step) if isinstance(body, Mapping) else None
    return tuple(steps)


def _at(parsed: tuple[Document, ...], index: int, path: Path) -> Any:
    return next(
        (value_at(document.value, path) for document in parsed if document.index == index),
        MISSING,
    )
