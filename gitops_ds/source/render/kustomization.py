"""The references of a kustomization.yaml: its source files, and findings for references outside of
the repository. Pure.

Fields: https://kubectl.docs.kubernetes.io/references/kustomize/kustomization/
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import msgspec

from gitops_ds.core.finding import Finding, Place, RuleDefinition
from gitops_ds.core.objects import Path
from gitops_ds.source.rules import INVALID_KUSTOMIZATION, KUSTOMIZE_FAILED, NO_FILE, REMOTE_RESOURCE
from gitops_ds.yaml import parser
from gitops_ds.yaml.documents import Document
from gitops_ds.yaml.provenance.lookup import KUSTOMIZATIONS

# A list of strings, each a file, a directory with a kustomization, or (if kustomize allows it) YAML
# on several lines.
_LISTS = (
    "resources",
    "bases",
    "components",
    "crds",
    "configurations",
    "generators",
    "transformers",
    "validators",
    "patchesstrategicmerge",
)
_WITH_PATH = ("patches", "patchesjson6902", "replacements")
_GENERATORS = ("configmapgenerator", "secretgenerator")
PLUGINS = ("generators", "transformers", "validators")
# The fields for files of the plugins of kustomize, which load them like kustomize, also from a URL.
_GIVES_KEYS = ("files", "envs", "env")
_FETCHED = (*_GIVES_KEYS, "path", "paths", "resources", "url", "repo", "valuesfile", "chart")
_HELM = ("helmcharts", "helmchartinflationgenerator")
# The texts that kustomize reads as a URL or a git address: a scheme, `git::`, `user@host:`,
# `host:path`, a query, a well-known host.
_REMOTE = re.compile(
    r"^[A-Za-z][A-Za-z0-9+.-]*:|::|^[^/]*@[^/]*[:/]|\?|^(?:www\.)?(?:github\.com|gitlab\.com|bitbucket\.org|dev\.azure\.com)[/:]"
)


class NamedPath(msgspec.Struct, frozen=True):
    """A reference and its path in the file."""

    text: str
    path: Path


class Kustomization(msgspec.Struct, frozen=True):
    """The references of a kustomization file. A `component` is a part of others, never built by
    itself.
    """

    file: PurePosixPath
    names: tuple[NamedPath, ...] = ()
    component: bool = False
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True)
class Reached:
    """The source files of a kustomization with all its parts, and the findings."""

    files: set[PurePosixPath] = field(default_factory=set)
    resources: list[PurePosixPath] = field(default_factory=list)
    patches: list[PurePosixPath] = field(default_factory=list)
    directories: set[PurePosixPath] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)


def find(
    files: Mapping[PurePosixPath, bytes], skip: Callable[[PurePosixPath], bool]
) -> dict[PurePosixPath, Kustomization]:
    """The kustomizations by directory, except those below a directory with a name that begins with
    a dot.
    """
    kustomizations: dict[PurePosixPath, Kustomization] = {}
    named = [path for path in files if path.name in KUSTOMIZATIONS]
    for path in sorted(named, key=lambda path: KUSTOMIZATIONS.index(path.name)):
        hidden = any(part.startswith(".") for part in path.parts)
        if not hidden and not skip(path) and path.parent not in kustomizations:
            kustomizations[path.parent] = read(path, files[path])
    return dict(sorted(kustomizations.items()))


def read(file: PurePosixPath, data: bytes) -> Kustomization:
    """The parsed file; a finding if it is not a single mapping, or uses Helm (which would fetch a
    chart).
    """
    parsed = parser.read(str(file), data)
    if parsed.findings and any(f.refused for f in parsed.findings):
        return Kustomization(file, findings=tuple(parsed.findings))
    values = [d.value for d in parsed.documents if d.value is not None]
    if len(values) != 1 or not isinstance(values[0], dict):
        message = (
            "a kustomization file must be one document, a mapping; see "
            "https://kubectl.docs.kubernetes.io"
        )
        return Kustomization(
            file,
            findings=(
                INVALID_KUSTOMIZATION.refusal(message, parser.place(str(file), data, 0, ())),
            ),
        )
    value = values[0]
    message = (
        "Helm charts in a kustomization are not rendered: name the chart under helm: in the "
        "agent's source.yaml instead"
    )
    helm = tuple(
        INVALID_KUSTOMIZATION.refusal(message, parser.place(str(file), data, 0, (key,), key=True))
        for key in value
        if key.lower() in _HELM
    )
    return Kustomization(file, tuple(_named(value)), value.get("kind") == "Component", helm)


def _named(value: Mapping[str, Any]) -> Iterator[NamedPath]:
    for key, entry in value.items():
        # Go's JSON parser, which kustomize uses, ignores the case of field names.
        name = key.lower()
        if name == "openapi" and isinstance(entry, dict):
            yield from _text(entry, (key,), "path")
        for index, item in enumerate(entry if isinstance(entry, list) else ()):
            at: Path = (key, index)
            if name in _LISTS and isinstance(item, str):
                yield NamedPath(item, at)
            elif name in _WITH_PATH and isinstance(item, dict):
                yield from _text(item, at, "path")
            elif name in _GENERATORS and isinstance(item, dict):
                yield from _text(item, at, "env")
                yield from _sources(item, at)


def _text(value: Mapping[str, Any], at: Path, field: str) -> Iterator[NamedPath]:
    for key, text in value.items():
        if key.lower() == field and isinstance(text, str):
            yield NamedPath(text, (*at, key))


def _sources(value: Mapping[str, Any], at: Path) -> Iterator[NamedPath]:
    """The files of a generator: `path`, or `key=path`."""
    for key, entries in value.items():
        if key.lower() in {"files", "envs"} and isinstance(entries, list):
            for index, text in enumerate(entries):
                if isinstance(text, str):
                    yield NamedPath(text.partition("=")[2] or text, (*at, key, index))


def named_files(files: Mapping[PurePosixPath, bytes]) -> Iterator[PurePosixPath]:
    """The paths that the kustomizations of these files reference, also in files of kustomize's own
    plugins.
    """
    for directory, one in find(files, lambda _: False).items():
        for named in one.names:
            if (path := _joined(directory, named.text)) is None:
                continue
            yield path
            if str(named.path[0]).lower() in PLUGINS and path in files:
                for text, _, _ in plugin_texts(str(path), files[path]):
                    yield from filter(
                        None,
                        (
                            _joined(at, text.partition("=")[2] or text)
                            for at in (directory, path.parent)
                        ),
                    )


def plugin_texts(file: str, data: bytes) -> Iterator[tuple[str, Document, Path]]:
    """Every string in the configuration of a plugin, with its document and path."""
    for document in parser.read(file, data).documents:
        for text, path in _texts(document.value, ()):
            yield text, document, path


def _fetching(
    here: Kustomization,
    named: NamedPath,
    target: PurePosixPath | None,
    files: Mapping[PurePosixPath, bytes],
    *,
    strict: bool,
) -> Iterator[Finding]:
    """A blocking finding for each URL in the configuration of a plugin, in a file or inline."""
    inline = "\n" in named.text
    if not inline and target not in files:
        return
    file, data = (
        (str(here.file), named.text.encode())
        if inline or target is None
        else (str(target), files[target])
    )
    for text, document, path in plugin_texts(file, data):
        keys = {str(step).lower() for step in path}
        value = (
            text.partition("=")[2]
            if not keys.isdisjoint(_GIVES_KEYS) and "=" in text.partition(":")[0]
            else text
        )
        if not (
            _REMOTE.search(value) if not keys.isdisjoint(_FETCHED) else strict and "://" in text
        ):
            continue
        message = (
            f"{value.split('?')[0]!r} is remote; builds don't fetch: commit a copy and reference it"
        )
        if inline:
            yield _refused(REMOTE_RESOURCE, message, here, named, files)
        else:
            yield REMOTE_RESOURCE.refusal(message, parser.place(file, data, document.index, path))


def _texts(value: Any, at: Path) -> Iterator[tuple[str, Path]]:
    if isinstance(value, str):
        yield value, at
    for key, inner in (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from _texts(inner, (*at, key))


def tops(kustomizations: Mapping[PurePosixPath, Kustomization]) -> list[PurePosixPath]:
    """The directories to build: those that no other kustomization references, without
    components.
    """
    used = {
        _joined(directory, named.text)
        for directory, k in kustomizations.items()
        for named in k.names
    }
    return [
        directory
        for directory, k in kustomizations.items()
        if directory not in used and not k.component
    ]


def cycles(
    kustomizations: Mapping[PurePosixPath, Kustomization], built: Collection[PurePosixPath]
) -> Iterator[tuple[PurePosixPath, ...]]:
    """The directories of kustomizations that refer to each other, of which no kustomization of
    `built` uses one: each cycle in the order of its references, with its first directory twice.
    """
    known = {directory for top in built for directory in _used(top, kustomizations)}
    for directory in sorted(set(kustomizations) - known):
        path = [directory]
        while path and directory not in known:
            parts = [part for part in _parts(path[-1], kustomizations) if part not in known]
            back = next((part for part in parts if part in path), None)
            if back is not None:
                cycle = path[path.index(back) :]
                if not all(kustomizations[member].component for member in cycle):
                    start = cycle.index(min(cycle))
                    yield (*cycle[start:], *cycle[:start], cycle[start])
                known.update(path)
            elif parts:
                path.append(parts[0])
            else:
                known.add(path.pop())


def of_cycle(
    cycle: tuple[PurePosixPath, ...],
    kustomizations: Mapping[PurePosixPath, Kustomization],
    files: Mapping[PurePosixPath, bytes],
) -> Finding:
    """The finding of a cycle, at the reference of its first directory."""
    here = kustomizations[cycle[0]]
    named = next(name for name in here.names if _joined(cycle[0], name.text) == cycle[1])
    way = " → ".join(str(kustomizations[directory].file) for directory in cycle)
    message = f"kustomizations refer to each other, and none is built: {way}; remove a reference"
    return _refused(KUSTOMIZE_FAILED, message, here, named, files)


def _parts(
    directory: PurePosixPath, kustomizations: Mapping[PurePosixPath, Kustomization]
) -> list[PurePosixPath]:
    """The kustomizations that one references."""
    joined = (_joined(directory, name.text) for name in kustomizations[directory].names)
    return [
        reference for reference in joined if reference is not None and reference in kustomizations
    ]


def _used(
    top: PurePosixPath, kustomizations: Mapping[PurePosixPath, Kustomization]
) -> set[PurePosixPath]:
    """The kustomization and all that it references, directly and through its parts."""
    used, waiting = set[PurePosixPath](), {top}
    while waiting:
        used |= waiting
        waiting = {
            part for directory in waiting for part in _parts(directory, kustomizations)
        } - used
    return used


def reach(
    top: PurePosixPath,
    kustomizations: Mapping[PurePosixPath, Kustomization],
    files: Mapping[PurePosixPath, bytes],
    *,
    strict: bool = False,
) -> Reached:
    """The files that a kustomization references, directly and through its parts. References that
    are remote or missing are blocking findings.

    `strict`: any URL in the configuration of plugins is a finding, not only one that a built-in
    plugin would fetch.
    """
    result = Reached()
    waiting = [(top, False)]
    visited = set[tuple[PurePosixPath, bool]]()
    while waiting:
        # A directory under `generators:` and similar fields yields the configuration of plugins.
        directory, of_plugin = waiting.pop()
        if (directory, of_plugin) in visited:
            continue
        visited.add((directory, of_plugin))
        result.directories.add(directory)
        here = kustomizations[directory]
        result.files.add(here.file)
        result.findings += here.findings
        if of_plugin and strict:
            result.findings += _url_in_plugin(here, files)
        for named in here.names:
            target = _joined(directory, named.text)
            configures = of_plugin or str(named.path[0]).lower() in PLUGINS
            if configures:
                result.findings += _fetching(here, named, target, files, strict=strict)
            if "\n" in named.text and named.path[0] not in {"resources", "bases", "components"}:
                continue
            if target is not None and target in kustomizations and not _REMOTE.search(named.text):
                waiting.append((target, configures))
            else:
                _add(result, here, named, target, files)
    return result


def _url_in_plugin(here: Kustomization, files: Mapping[PurePosixPath, bytes]) -> Iterator[Finding]:
    """The finding of a URL in a kustomization that configures plugins."""
    if b"://" in files[here.file]:
        message = (
            "it configures plugins and contains a URL, which could be fetched: commit a copy "
            "and reference it"
        )
        yield REMOTE_RESOURCE.refusal(message, Place(str(here.file), 1, 1))


def _add(
    result: Reached,
    here: Kustomization,
    named: NamedPath,
    target: PurePosixPath | None,
    files: Mapping[PurePosixPath, bytes],
) -> None:
    """Adds a referenced file to the result, or the finding of a remote or missing one."""
    if _REMOTE.search(named.text):
        message = (
            f"{named.text.split('?')[0]!r} is remote; builds don't fetch: commit a copy "
            "and reference it"
        )
        result.findings.append(_refused(REMOTE_RESOURCE, message, here, named, files))
    elif target is not None and target in files:
        result.files.add(target)
        if (part := str(named.path[0]).lower()) in ("resources", "bases"):
            result.resources.append(target)
        elif part.startswith("patches"):
            # Parents precede their bases in the walk, but patches of a base apply first.
            result.patches.insert(0, target)
    else:
        message = (
            f"there is no file {named.text!r}, and no directory of that name with a "
            "kustomization.yaml"
        )
        result.findings.append(_refused(NO_FILE, message, here, named, files))


def _joined(directory: PurePosixPath, text: str) -> PurePosixPath | None:
    whole = posixpath.normpath(posixpath.join(str(directory), text))
    return None if whole.startswith(("/", "../")) or whole == ".." else PurePosixPath(whole)


def _refused(
    rule: RuleDefinition,
    message: str,
    here: Kustomization,
    named: NamedPath,
    files: Mapping[PurePosixPath, bytes],
) -> Finding:
    return rule.refusal(message, parser.place(str(here.file), files[here.file], 0, named.path))
