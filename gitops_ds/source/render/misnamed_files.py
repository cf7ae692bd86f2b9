"""Files whose name or folder is almost one that is read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from gitops_ds.core.finding import Finding, Place
from gitops_ds.source.render.agent_folder import OUR_FILES
from gitops_ds.source.render.layout import MANIFEST_SUFFIXES, SETTINGS
from gitops_ds.source.rules import UNREAD_OBJECTS, UNUSED_FILE
from gitops_ds.yaml.provenance.lookup import KUSTOMIZATION, KUSTOMIZATIONS

_STEMS = {PurePosixPath(name).stem: name for name in OUR_FILES}
_SETTINGS_STEM = PurePosixPath(SETTINGS).stem
_NEAR = 0.85


def in_lower_case(path: PurePosixPath) -> PurePosixPath:
    """The path with a suffix of manifests as it is read, such as a.yaml for a.YAML."""
    lower = path.suffix.lower()
    return path.with_suffix(lower) if lower in MANIFEST_SUFFIXES else path


def other_case(path: PurePosixPath) -> Finding:
    """The finding for a file that is read if its suffix is in lower case."""
    return _refused(path, f"its suffix must be in lower case: rename it to {in_lower_case(path)}")


def other_name(path: PurePosixPath) -> Finding:
    """The finding for a file in a folder of our format, in which only files NAME.yaml are read."""
    name = path.with_suffix(".yaml").name
    folder = PurePosixPath(*path.parts[: 1 if path.parts[0] != "agents" else 3])
    return _refused(path, f"of this folder only files NAME.yaml are, such as {folder / name}")


def without_object(path: PurePosixPath) -> Finding:
    """The finding for a file of an agent without an object."""
    if (name := _near(path)) is None:
        message = f"{path} is not read: it has no object"
        return UNUSED_FILE.finding(message, Place(str(path), 1, 1))
    if path.name != name:
        return _refused(path, f"it has no object; did you mean {name}?")
    if len(path.parts) != 3:
        return _refused(path, f"its place is agents/NAME/{name}, for all manifests of agents/NAME")
    return _refused(path, f"only with {SETTINGS} at the top are the folders of agents/ agents")


def settings(paths: Iterable[PurePosixPath], *, ours: bool) -> Iterator[Finding]:
    """Files without an object that seem to be gitops-ds.yaml, of which only the one at the top is
    read. `ours`: whether the directory has files of our format.
    """
    for path in paths:
        if path.name == SETTINGS and not ours:
            where = path.parent
            yield _refused(path, f"name its directory as that of the repository (--path {where})")
        elif len(path.parts) == 1 and _is_near(path.stem, _SETTINGS_STEM):
            yield _refused(path, f"it has no object; did you mean {SETTINGS}?")


def _near(path: PurePosixPath) -> str | None:
    """The name of a file of an agent that the file of this name seems to be."""
    stem = path.stem.lower()
    if stem == PurePosixPath(KUSTOMIZATION).stem:
        return None if path.name in KUSTOMIZATIONS else KUSTOMIZATION
    if len(path.parts) != 3:
        return _STEMS.get(stem)
    near = difflib.get_close_matches(stem, _STEMS, 1, _NEAR)
    return _STEMS[near[0]] if near else None


def _is_near(stem: str, known: str) -> bool:
    return difflib.SequenceMatcher(None, stem.lower(), known).ratio() >= _NEAR


def _refused(path: PurePosixPath, message: str) -> Finding:
    return UNREAD_OBJECTS.refusal(f"{path} is not read: {message}", Place(str(path), 1, 1))
