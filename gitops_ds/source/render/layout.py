"""The layout of a repository: gitops-ds.yaml, environments/, clusters/, and the agents.

Invalid values are ignored here: `checks.schema.repository_files` has the findings for unknown keys
and wrong types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import attrgetter
from pathlib import PurePosixPath
from typing import Any

import msgspec

from gitops_ds.core.finding import Finding, Place, Severity
from gitops_ds.core.live import Taint
from gitops_ds.core.sources.bundle import Custom, Pointer, Pool, Requirement
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.kube.apimachinery import capacity
from gitops_ds.source.render import ignore, parsed_objects
from gitops_ds.source.render.parsed_objects import Objects
from gitops_ds.yaml import parser
from gitops_ds.yaml.provenance import lookup

SETTINGS = "gitops-ds.yaml"
IGNORE_FILE = ".gitopsdsignore"
MANIFEST_SUFFIXES = frozenset([".yaml", ".yml", ".json"])
# With one of these files agents/NAME/ is an agent of our format, even without gitops-ds.yaml and
# clusters/.
_OURS = frozenset(["params.schema.json", "variants.yaml", "source.yaml", "agent.yaml"])


class File(msgspec.Struct, frozen=True):
    """A parsed file of our format: the value of its first document (a mapping, else empty), and its
    pointer.
    """

    name: str
    value: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def at(self, *path: str | int) -> Pointer:
        """The pointer to a value of this file."""
        return Pointer(self.name, 0, path)

    def section(self, *path: str) -> Mapping[str, Any]:
        """The mapping at a path; empty if it is missing."""
        value: Any = self.value
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        return value if isinstance(value, Mapping) else {}

    def text(self, *path: str) -> str:
        """The string at a path; empty if it is missing."""
        value = self.section(*path[:-1]).get(path[-1])
        return value if isinstance(value, str) else ""


# The order of paths, faster than their comparison in pairs.
_PARTS = attrgetter("parts")


@dataclass(frozen=True)
class Layout:
    """The files of a snapshot that are not ignored, sorted. Files of our format are parsed on
    demand.

    `ours`: the repository has files of our format; otherwise every file is a plain manifest.
    `parsed` are the objects of files that were read.
    """

    snapshot: SourceTree
    files: Mapping[PurePosixPath, bytes]
    settings: File
    ours: bool
    ignored: ignore.Patterns = ignore.NONE
    parsed: dict[PurePosixPath, Objects] = field(default_factory=dict)

    @cached_property
    def clusters(self) -> Mapping[str, File]:
        """clusters/NAME.yaml by NAME."""
        return self._folder("clusters") if self.ours else {}

    @cached_property
    def environments(self) -> Mapping[str, File]:
        """environments/NAME.yaml by NAME."""
        return self._folder("environments") if self.ours else {}

    @cached_property
    def agents(self) -> Mapping[str, tuple[PurePosixPath, ...]]:
        """The files of agents/NAME/ by NAME, including the output of kustomize."""
        by_agent: dict[str, list[PurePosixPath]] = {}
        for path in sorted(
            {*self.files, *(p / "kustomization.yaml" for p in self.snapshot.expanded)}, key=_PARTS
        ):
            if len(path.parts) > 2 and path.parts[0] == "agents":
                by_agent.setdefault(path.parts[1], []).append(path)
        # An agent whose kustomization could not be built is an agent too: otherwise references to
        # it would have findings.
        for finding in self.snapshot.findings:
            parts = (
                PurePosixPath(finding.place.file).parts if finding.refused and finding.place else ()
            )
            if len(parts) > 2 and parts[0] == "agents":
                by_agent.setdefault(parts[1], [])
        if not self.ours:
            return {}
        if not self.settings.name and not self.clusters:
            by_agent = {
                name: paths
                for name, paths in by_agent.items()
                if any(p.name in _OURS for p in paths)
            }
        return {name: tuple(paths) for name, paths in by_agent.items()}

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all environments and clusters, which are the valid names of files under
        values/ and patches/.
        """
        environments = {cluster.text("environment") for cluster in self.clusters.values()}
        return frozenset({*self.clusters, *self.environments, *environments} - {""})

    def place(self, pointer: Pointer, *, key: bool = False) -> Place:
        """The place of the pointer's value (or its key), or of its nearest parent in the file."""
        path = PurePosixPath(pointer.file)
        if pointer.line and path in self.snapshot.files:
            return lookup.span(pointer, self.snapshot.files[path])[0]
        if (
            path.suffix not in MANIFEST_SUFFIXES
            or is_config(path)
            or path not in self.snapshot.files
        ):
            return Place(pointer.file, 1, 1)
        return parser.place(
            pointer.file, self.snapshot.files[path], pointer.document, pointer.path, key=key
        )

    def read(self, path: PurePosixPath) -> File:
        """The parsed file of our format; `findings_of` returns its syntax errors."""
        data = self.files.get(path)
        if data is None:
            return File("")
        values = [document.value for document in parser.read(str(path), data).documents]
        return File(str(path), values[0] if values and isinstance(values[0], Mapping) else {})

    def objects(self, path: PurePosixPath) -> Objects:
        """The objects of the file, cached for all clusters."""
        if (objects := self.parsed.get(path)) is None:
            objects = self.parsed[path] = parsed_objects.read(
                str(path), self.files[path], self.snapshot.cached
            )
        return objects

    def findings_of(self, path: PurePosixPath) -> tuple[Finding, ...]:
        """The syntax errors of the file."""
        return (
            tuple(parser.read(str(path), self.files[path]).findings) if path in self.files else ()
        )

    def _folder(self, name: str) -> dict[str, File]:
        paths = sorted(
            p for p in self.files if p.parent == PurePosixPath(name) and p.suffix == ".yaml"
        )
        return {path.stem: self.read(path) for path in paths}


@lru_cache(maxsize=4)  # for each cluster: base and head, and candidates of a fix
def read(snapshot: SourceTree) -> Layout:
    """The layout of a snapshot, without ignored files."""
    settings_path = PurePosixPath(SETTINGS)
    lines: list[str] = []
    if (own := snapshot.files.get(PurePosixPath(IGNORE_FILE))) is not None:
        lines += own.decode("utf-8", "replace").splitlines()
    everything = Layout(snapshot, snapshot.files, File(""), ours=False)
    settings = everything.read(settings_path)
    lines += texts(settings.value.get("ignore"))
    taken = ignore.patterns(lines)
    files = {
        path: snapshot.files[path]
        for path in sorted(snapshot.files, key=_PARTS)
        if path not in snapshot.consumed and not taken.take(path) and not _hidden(path)
    }
    return Layout(
        snapshot,
        files,
        settings,
        bool(settings.name) or any(_is_ours(path) for path in files),
        taken,
    )


def is_config(path: PurePosixPath) -> bool:
    """Whether this is a file of an agent's config/ folder, whose bytes are not parsed."""
    return len(path.parts) > 3 and path.parts[0] == "agents" and path.parts[2] == "config"


def requirements(value: Any) -> tuple[Requirement, ...]:
    """The conditions of a `match:` list: `{key, in: [...]}`, `{key, notIn: [...]}`, `{key, exists:
    true|false}`.
    """
    terms = []
    for entry in value if isinstance(value, list) else []:
        key = entry.get("key") if isinstance(entry, Mapping) else None
        if not isinstance(key, str):
            continue
        if "in" in entry:
            terms.append(Requirement(key, "In", texts(entry["in"])))
        elif "notIn" in entry:
            terms.append(Requirement(key, "NotIn", texts(entry["notIn"])))
        else:
            terms.append(
                Requirement(key, "DoesNotExist" if entry.get("exists") is False else "Exists")
            )
    return tuple(terms)


def pools(cluster: File) -> tuple[Pool, ...]:
    """The pools of a cluster file, in its order."""
    all_pools = []
    for name, pool in cluster.section("pools").items():
        if isinstance(pool, Mapping):
            number = pool.get("nodes")
            count = (
                number
                if isinstance(number, int) and not isinstance(number, bool) and number >= 0
                else None
            )
            labels = tuple(
                sorted((key, str(value)) for key, value in _mapping(pool.get("labels")).items())
            )
            taints = tuple(
                _taint(taint) for taint in _list(pool.get("taints")) if isinstance(taint, Mapping)
            )
            all_pools.append(
                Pool(
                    name,
                    requirements(pool.get("match")),
                    count,
                    labels,
                    taints,
                    _amounts(pool.get("allocatable")),
                )
            )
    return tuple(all_pools)


def _taint(taint: Mapping[str, Any]) -> Taint:
    return Taint(
        str(taint.get("key") or ""), str(taint.get("effect") or ""), str(taint.get("value") or "")
    )


def _amounts(amounts: Any) -> tuple[tuple[str, int], ...]:
    try:
        return tuple(
            sorted(capacity.allocatable({"status": {"allocatable": _mapping(amounts)}}).items())
        )
    except ValueError:  # the schema refuses an invalid quantity
        return ()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def custom(settings: File) -> tuple[Custom, ...]:
    """The repository's own rules, without invalid ones."""
    rules = []
    for index, one in enumerate(_list(settings.value.get("custom"))):
        rule = _mapping(one)
        if isinstance(rule.get("name"), str) and isinstance(rule.get("schema"), Mapping):
            severity = (
                Severity(rule["severity"])
                if rule.get("severity") in tuple(Severity)
                else Severity.ERROR
            )
            kinds = texts(rule.get("kinds")) or ("DaemonSet",)
            message = rule["message"] if isinstance(rule.get("message"), str) else ""
            rules.append(
                Custom(
                    rule["name"],
                    rule["schema"],
                    settings.at("custom", index),
                    kinds,
                    severity,
                    message,
                )
            )
    return tuple(rules)


def texts(value: Any) -> tuple[str, ...]:
    """The strings of a list; a single string is a list of one."""
    if isinstance(value, str):
        return (value,)
    return (
        tuple(entry for entry in value if isinstance(entry, str)) if isinstance(value, list) else ()
    )


def did_you_mean(name: str, words: Iterable[str]) -> str:
    """`; did you mean x?` for a similar known name, else the known names, else an empty text."""
    names = sorted(words)
    import difflib  # few renderings need it

    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known: {', '.join(names[:12])}" if names else ""


def _hidden(path: PurePosixPath) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _is_ours(path: PurePosixPath) -> bool:
    parts = path.parts
    if len(parts) == 2 and parts[0] == "clusters":
        return path.suffix == ".yaml"
    return len(parts) == 3 and parts[0] == "agents" and parts[2] in _OURS
