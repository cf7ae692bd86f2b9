"""Patches of rendered objects, for fields without a parameter: strategic merge documents and JSON
Patch operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gitops_ds.core.finding import Finding, Place
from gitops_ds.core.sources.bundle import Pointer
from gitops_ds.kube.apimachinery import patches
from gitops_ds.kube.apimachinery.patches import PatchFailed
from gitops_ds.source.render import traced_values
from gitops_ds.source.render.parsed_objects import PlaceOf
from gitops_ds.source.render.traced_values import TracedTree
from gitops_ds.source.rules import NO_MATCH
from gitops_ds.yaml.documents import Document

# Fields that only identify the object of a merge document.
_IDENTITY = ("apiVersion", "kind")
_IDENTITY_METADATA = ("name", "namespace")


class Patch(msgspec.Struct, frozen=True):
    """One change and its target objects; an empty name matches all of the kind.

    `change` is a traced tree: a list of JSON Patch operations, or a mapping to merge.
    """

    kind: str
    name: str
    change: TracedTree
    at: Pointer

    def fits(self, kind: str, *names: str) -> bool:
        """Whether the patch is for an object of this kind with one of these names."""
        return self.kind == kind and (not self.name or self.name in names)


def of_documents(file: str, documents: tuple[Document, ...]) -> Iterator[Patch]:
    """The patches of a file: documents with a kind, lists of operations, or lists of `{target,
    patch}`.
    """
    for document in documents:
        at = Pointer(file, document.index, ())
        if isinstance(document.value, list):
            yield from of_entries(document.value, at)
        elif isinstance(document.value, Mapping):
            yield from of_entry(document.value, at)


def of_entries(entries: Any, at: Pointer) -> Iterator[Patch]:
    """The patches of a list: bare operations are for the DaemonSet."""
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, Mapping):
            yield from of_entry(entry, Pointer(at.file, at.document, (*at.path, index)))


def of_entry(entry: Mapping[str, Any], at: Pointer) -> Iterator[Patch]:
    """The patch of one entry, by its shape: `op`, `target` and `patch`, or an object's `kind`."""
    if "op" in entry:
        yield Patch("DaemonSet", "", [traced_values.trace(entry, at)], at)
    elif isinstance(entry.get("target"), Mapping):
        target, inner = entry["target"], Pointer(at.file, at.document, (*at.path, "patch"))
        change = entry.get("patch")
        if isinstance(change, Mapping):
            change = _without_identity(change)
        yield Patch(
            str(target.get("kind", "DaemonSet")),
            str(target.get("name", "")),
            traced_values.trace(change, inner),
            at,
        )
    elif "kind" in entry:
        metadata = entry.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        yield Patch(
            str(entry["kind"]),
            str(name or ""),
            traced_values.trace(_without_identity(entry), at),
            at,
        )


def apply(tree: TracedTree, patch: Patch, place: PlaceOf) -> tuple[TracedTree, Finding | None]:
    """The traced object after the patch; unchanged, with a finding, if the patch can't be
    applied.
    """
    if isinstance(patch.change, dict):
        patched = patches.apply_strategic_merge(tree, patch.change, patch.kind)
        return (
            (patched, None) if _is_same_kind(patched, tree) else (tree, _no_object(place(patch.at)))
        )
    try:
        patched = patches.apply_json_patch(tree, patch.change)
        return (
            (patched, None) if _is_same_kind(patched, tree) else (tree, _no_object(place(patch.at)))
        )
    except PatchFailed as failed:
        at = patch.at
        operation = (
            patch.change[failed.index] if isinstance(patch.change, list) and patch.change else None
        )
        first = next((scalar.set_by[0] for _, scalar in traced_values.scalars(operation)), at)
        pointer = (
            Pointer(first.file, first.document, first.path[:-1] or at.path) if operation else at
        )
        return tree, NO_MATCH.refusal(f"this patch can't be applied: {failed}", place(pointer))


def _is_same_kind(patched: TracedTree, tree: TracedTree) -> bool:
    return isinstance(patched, dict) and all(patched.get(key) == tree[key] for key in _IDENTITY)


def _no_object(place: Place) -> Finding:
    return NO_MATCH.refusal("this patch would leave no object of the same kind", place)


def _without_identity(document: Mapping[str, Any]) -> dict[str, Any]:
    """The merge document without the identity of its object: its name must not replace a
    variant's.
    """
    rest = {key: value for key, value in document.items() if key not in _IDENTITY}
    if isinstance(rest.get("metadata"), Mapping):
        rest["metadata"] = {
            k: v for k, v in rest["metadata"].items() if k not in _IDENTITY_METADATA
        }
    return rest
