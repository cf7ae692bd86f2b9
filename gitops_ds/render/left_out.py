"""Files with Kubernetes objects that a repository with gitops-ds.yaml does not read. Pure.

A directory of manifests is read as a whole. With gitops-ds.yaml it is a repository of agents, of
which only agents/ and `manifests:` are read: without the latter its other manifests would be left
out silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from gitops_ds.model.finding import Finding, Severity, refusal
from gitops_ds.model.plural import counted
from gitops_ds.model.sources.bundle import Pointer
from gitops_ds.render.layout import MANIFEST_SUFFIXES, SETTINGS, Layout

_OURS = ("agents", "clusters", "environments")
_SHOWN = 5  # names of files in the message
_FIELDS = tuple(
    re.compile(rb"""(?:^|[{,])\s*["']?%b["']?\s*:""" % name, re.MULTILINE)
    for name in (b"apiVersion", b"kind")
)
_KUSTOMIZATION = re.compile(rb"^kind:\s*Kustomization\b", re.MULTILINE)


def findings(layout: Layout) -> Iterable[Finding]:
    """An error if no file is read at all, a warning if only agents/ are; none with `manifests:`,
    also with an empty list.
    """
    if not layout.settings.name or "manifests" in layout.settings.value:
        return
    place = layout.place(Pointer(SETTINGS, 0, ()))
    files = [path for path in sorted(layout.files) if _has_objects(layout, path)]
    if files:
        message = (
            f"{_names(files)} outside of agents/ {'is' if len(files) == 1 else 'are'} not read; "
            f"add `manifests: [{', '.join(_globs(files))}]`, or `manifests: []` to leave them out"
        )
        if layout.agents:
            yield Finding("DS804", Severity.WARNING, message, place)
        else:
            yield refusal("DS804", message, place)
    elif not layout.agents:
        message = "nothing to render: no agents/ folder, and no `manifests:` in gitops-ds.yaml"
        yield Finding("DS804", Severity.WARNING, message, place)


def _has_objects(layout: Layout, path: PurePosixPath) -> bool:
    if path.suffix not in MANIFEST_SUFFIXES or str(path) == SETTINGS or path.parts[0] in _OURS:
        return False
    text = layout.files[path]
    return all(one.search(text) for one in _FIELDS) and not _KUSTOMIZATION.search(text)


def _names(files: Sequence[PurePosixPath]) -> str:
    names = ", ".join(map(str, files[:_SHOWN]))
    more = len(files) - _SHOWN
    return f"{names} and {counted(more, 'more file')}" if more > 0 else names


def _globs(files: Iterable[PurePosixPath]) -> list[str]:
    """The shortest globs of all these files: by suffix in the top folder, else by folder."""
    made = dict[str, None]()
    for path in files:
        glob = f"*{path.suffix}" if len(path.parts) == 1 else f"{path.parts[0]}/**"
        made[f'"{glob}"'] = None
    return list(made)
