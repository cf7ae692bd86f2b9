"""Who reads each file of a repository. Every file has one role, so none is left out silently; one
whose name or folder is almost one that is read is a finding.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import PurePosixPath

from gitops_ds.core.finding import Finding, Place
from gitops_ds.core.plain_text import counted
from gitops_ds.core.sources.bundle import Pointer
from gitops_ds.source.render import (
    agent_folder,
    charts,
    ignore,
    kustomization,
    layout,
)
from gitops_ds.source.render.agent_folder import OUR_FILES
from gitops_ds.source.render.layout import MANIFEST_SUFFIXES, SETTINGS, File, Layout
from gitops_ds.source.rules import NO_OBJECTS, UNREAD_OBJECTS, UNUSED_FILE
from gitops_ds.yaml.provenance.lookup import KUSTOMIZATION, KUSTOMIZATIONS

_OURS = ("agents", "clusters", "environments")
_SHOWN = 5  # names of files in the message
_FIELDS = tuple(
    re.compile(rb"""(?:^|[{,])[\s-]*["']?%b["']?\s*:""" % name, re.MULTILINE)
    for name in (b"apiVersion", b"kind")
)
_KUSTOMIZATION = re.compile(rb"^kind:\s*Kustomization\b", re.MULTILINE)
# Files that are read, whose names others may be near to.
_STEMS = {PurePosixPath(name).stem: name for name in OUR_FILES}
_SETTINGS_STEM = PurePosixPath(SETTINGS).stem
_NEAR = 0.85


class FileRole(Enum):
    """The reader of a file that is not ignored and that no program consumed.

    OURS: a file of our format. AGENT: a manifest in the folder of an agent. PLAIN: a manifest, or
    the output of kustomize, of no agent. CONTENT: a file of an agent's config/, or one that is
    neither YAML nor JSON. OTHER_CASE: one that is read if its suffix is in lower case. UNREAD: read
    by nothing.
    """

    OURS = "ours"
    AGENT = "agent"
    PLAIN = "plain"
    CONTENT = "content"
    OTHER_CASE = "other case"
    UNREAD = "unread"


def roles(repo_layout: Layout) -> Mapping[PurePosixPath, FileRole]:
    """The role of every file of the layout, and of the kustomization of every built folder."""
    listed = ignore.patterns(
        layout.texts(repo_layout.settings.value.get("manifests")), anchored=True
    )
    built = (
        path
        for folder in sorted(repo_layout.snapshot.expanded)
        if not repo_layout.ignored.take(path := folder / "kustomization.yaml")
    )
    return {path: _role(path, repo_layout, listed) for path in (*repo_layout.files, *built)}


def _role(path: PurePosixPath, repo_layout: Layout, listed: ignore.Patterns) -> FileRole:
    if layout.is_config(path):
        return FileRole.CONTENT
    if path.suffix not in MANIFEST_SUFFIXES:
        lower = _in_lower_case(path)
        if lower == path:
            return FileRole.CONTENT
        role = _role(lower, repo_layout, listed)
        return role if role is FileRole.UNREAD else FileRole.OTHER_CASE
    if path.parts == (SETTINGS,):
        return FileRole.OURS
    if repo_layout.settings.name and listed.take(path):
        return FileRole.PLAIN
    match path.parts:
        case ("agents", name, *_) if len(path.parts) > 2 and name in repo_layout.agents:
            return _in_agent(path)
        case ("agents", _):
            return FileRole.PLAIN
        case (("clusters" | "environments"), _) if repo_layout.ours:
            return FileRole.OURS if path.suffix == ".yaml" else FileRole.UNREAD
    return FileRole.UNREAD if repo_layout.settings.name else FileRole.PLAIN


def _in_agent(path: PurePosixPath) -> FileRole:
    if not agent_folder.is_ours(path):
        return FileRole.AGENT
    of_our_name = len(path.parts) == 3 or (len(path.parts) == 4 and path.suffix == ".yaml")
    return FileRole.OURS if of_our_name else FileRole.UNREAD


def kustomize_sources(repo_layout: Layout) -> frozenset[PurePosixPath]:
    """The folders that source.yaml files name, also bases of other kustomizations."""
    sources = (
        (PurePosixPath("agents", name), agent_folder.kustomize_path(_source(name, repo_layout)))
        for name in repo_layout.agents
    )
    folders = (charts.inside(folder, named) for folder, named in sources if named)
    return frozenset(folder for folder in folders if folder is not None)


def _source(agent: str, repo_layout: Layout) -> File:
    return repo_layout.read(PurePosixPath("agents", agent, "source.yaml"))


def read_files(repo_layout: Layout) -> frozenset[PurePosixPath]:
    """The files whose content decides what is applied, those for other programs included."""
    return repo_layout.snapshot.consumed | {
        path
        for path, role in roles(repo_layout).items()
        if path in repo_layout.files
        and (
            role is FileRole.OURS
            or layout.is_config(path)
            or (role in (FileRole.AGENT, FileRole.PLAIN) and not _is_empty(path, repo_layout))
        )
    }


def unread_objects(
    repo_layout: Layout, by_path: Mapping[PurePosixPath, FileRole]
) -> Mapping[str, bytes]:
    """The files with objects that nothing reads, and their bytes."""
    return {
        str(path): repo_layout.files[path]
        for path, role in by_path.items()
        if role in (FileRole.UNREAD, FileRole.OTHER_CASE)
        and path in repo_layout.files
        and _has_objects(path, repo_layout)
    }


def without_objects(
    repo_layout: Layout, by_path: Mapping[PurePosixPath, FileRole], agents: Collection[str]
) -> list[PurePosixPath]:
    """The files among the manifests of these agents, and among plain ones, that have neither an
    object nor a finding.
    """
    return [
        path
        for path, role in by_path.items()
        if path in repo_layout.files
        and (role is FileRole.PLAIN or (role is FileRole.AGENT and path.parts[1] in agents))
        and _is_empty(path, repo_layout)
    ]


def _is_empty(path: PurePosixPath, repo_layout: Layout) -> bool:
    objects = repo_layout.objects(path)
    return not objects.drafts and not objects.findings


def findings(
    repo_layout: Layout, by_path: Mapping[PurePosixPath, FileRole], empty: Iterable[PurePosixPath]
) -> Iterator[Finding]:
    """DS804: files that seem to be of our format or for the cluster, and that nothing reads."""
    for path, role in by_path.items():
        if path.parts[0] in _OURS and path in repo_layout.files and role is FileRole.UNREAD:
            yield _other_name(path)
        elif role is FileRole.OTHER_CASE and (
            path.parts[0] in _OURS or _has_objects(path, repo_layout)
        ):
            yield _other_case(path)
    for path in empty:
        if path.parts[0] == "agents":
            yield _without_object(path)
    yield from _misplaced_settings(empty, ours=repo_layout.ours)
    sources = kustomize_sources(repo_layout)
    unread = [
        path
        for path, role in by_path.items()
        if role is FileRole.UNREAD
        and path.parts[0] not in _OURS
        and (path not in repo_layout.files or _has_objects(path, repo_layout))
        and path.parent not in sources
    ]
    yield from _taken_by_unread(repo_layout, unread)
    yield from _unread_manifests(repo_layout, by_path, unread)
    yield from _without_file(repo_layout, by_path)


def _taken_by_unread(repo_layout: Layout, unread: Iterable[PurePosixPath]) -> Iterator[Finding]:
    """An error for each kustomization without a reader that takes the manifests of agents."""
    built = [path.parent for path in unread if path not in repo_layout.files]
    if not built:
        return
    files = repo_layout.snapshot.files
    found = kustomization.find(files, lambda _: False)
    for folder in built:
        taken = sorted(
            path
            for path in kustomization.reach(folder, found, files, strict=False).files
            if path.parts[0] == "agents"
        )
        if taken:
            file = found[folder].file
            message = (
                f"the output of {file} is not read, and {_names(taken)} only for it: add "
                f'`manifests: ["{file}"]`, or exclude {file} by `ignore:`'
            )
            yield UNREAD_OBJECTS.refusal(message, Place(str(file), 1, 1))


def _unread_manifests(
    repo_layout: Layout, by_path: Mapping[PurePosixPath, FileRole], unread: Sequence[PurePosixPath]
) -> Iterator[Finding]:
    """An error if no file is read at all, a warning if only agents/ are; none with `manifests:`,
    also with an empty list.

    A directory of manifests is read as a whole. With gitops-ds.yaml it is a repository of agents,
    whose other manifests would be left out silently.
    """
    if not repo_layout.settings.name or "manifests" in repo_layout.settings.value:
        return
    place = repo_layout.place(Pointer(SETTINGS, 0, ()))
    some = repo_layout.agents or FileRole.PLAIN in by_path.values()
    if unread:
        message = (
            f"{_names(unread)} outside of agents/ {'is' if len(unread) == 1 else 'are'} not read; "
            f"add `manifests: [{', '.join(_globs(unread))}]`, or `manifests: []` to leave them out"
        )
        if some:
            yield UNREAD_OBJECTS.warning(message, place)
        else:
            yield UNREAD_OBJECTS.refusal(message, place)
    elif not some:
        message = "nothing to render: no agents/ folder, and no `manifests:` in gitops-ds.yaml"
        yield NO_OBJECTS.finding(message, place)


def _without_file(repo_layout: Layout, paths: Iterable[PurePosixPath]) -> Iterator[Finding]:
    """A warning for each pattern of `manifests:` that no file matches."""
    listed = repo_layout.settings.value.get("manifests")
    for index, pattern in enumerate(listed if isinstance(listed, list) else []):
        if not isinstance(pattern, str) or pattern.startswith(("!", "#")) or not pattern.strip():
            continue
        takes = ignore.patterns((pattern,), anchored=True).take
        if not any(map(takes, paths)):
            message = f"no file matches {pattern!r}, so nothing is read for it"
            place = repo_layout.place(repo_layout.settings.at("manifests", index))
            yield NO_OBJECTS.finding(message, place)


def _has_objects(path: PurePosixPath, repo_layout: Layout) -> bool:
    text = repo_layout.files[path]
    return all(field.search(text) for field in _FIELDS) and not _KUSTOMIZATION.search(text)


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


def _in_lower_case(path: PurePosixPath) -> PurePosixPath:
    """The path with a suffix of manifests as it is read, such as a.yaml for a.YAML."""
    lower = path.suffix.lower()
    return path.with_suffix(lower) if lower in MANIFEST_SUFFIXES else path


def _other_case(path: PurePosixPath) -> Finding:
    """The finding for a file that is read if its suffix is in lower case."""
    return _refused(path, f"its suffix must be in lower case: rename it to {_in_lower_case(path)}")


def _other_name(path: PurePosixPath) -> Finding:
    """The finding for a file in a folder of our format, in which only files NAME.yaml are read."""
    name = path.with_suffix(".yaml").name
    folder = PurePosixPath(*path.parts[: 1 if path.parts[0] != "agents" else 3])
    return _refused(path, f"of this folder only files NAME.yaml are, such as {folder / name}")


def _without_object(path: PurePosixPath) -> Finding:
    """The finding for a file of an agent without an object."""
    if (name := _near(path)) is None:
        message = f"{path} is not read: it has no object"
        return UNUSED_FILE.finding(message, Place(str(path), 1, 1))
    if path.name != name:
        return _refused(path, f"it has no object; did you mean {name}?")
    if len(path.parts) != 3:
        return _refused(path, f"its place is agents/NAME/{name}, for all manifests of agents/NAME")
    return _refused(path, f"only with {SETTINGS} at the top are the folders of agents/ agents")


def _misplaced_settings(paths: Iterable[PurePosixPath], *, ours: bool) -> Iterator[Finding]:
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
