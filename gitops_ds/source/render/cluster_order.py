"""The order of the clusters of a repository, from `after` of clusters/NAME.yaml."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from gitops_ds.core import duration
from gitops_ds.core.finding import Finding
from gitops_ds.core.objects import Path
from gitops_ds.core.rollouts.cluster_report import WITHIN, ClusterBehind, ClusterOrder
from gitops_ds.source.render import layout
from gitops_ds.source.render.layout import File, Layout
from gitops_ds.source.rules import IMPOSSIBLE, UNDEFINED_NAME

_KEY = "after"


def orders(repo_layout: Layout) -> dict[str, ClusterOrder]:
    """The place of each cluster; empty if no cluster waits for another. Invalid values, which the
    schema refuses, are replaced by their defaults.
    """
    files = repo_layout.clusters
    before = {name: _before(file) for name, file in files.items()}
    if not any(before.values()):
        return {}
    waves = _waves(before)
    behind: dict[str, list[ClusterBehind]] = {name: [] for name in files}
    for name, file in files.items():
        for earlier in before[name]:
            if earlier in behind:
                behind[earlier].append(ClusterBehind(name, _seconds(file, "soak", 0.0)))
    return {
        name: ClusterOrder(
            before[name],
            _seconds(file, "soak", 0.0),
            _seconds(file, "within", WITHIN),
            waves.get(name, 0),
            max(waves.values(), default=1),
            tuple(behind[name]),
        )
        for name, file in files.items()
    }


def problems(repo_layout: Layout, name: str) -> Iterator[Finding]:
    """The mistakes in `after` of one cluster: unknown names, and a cycle through the cluster."""
    file = repo_layout.clusters.get(name)
    if file is None:
        return
    for path, one in _names(file):
        if one not in repo_layout.clusters:
            hint = layout.did_you_mean(one, repo_layout.clusters)
            place = repo_layout.place(file.at(*path))
            yield UNDEFINED_NAME.refusal(f"no cluster {one} in clusters/{hint}", place, path=path)
    cycle = _cycle(name, {one: _before(other) for one, other in repo_layout.clusters.items()})
    if cycle:
        path = next(path for path, one in _names(file) if one == cycle[1])
        message = f"the clusters wait for each other: {' after '.join(cycle)}"
        if len(cycle) == 2:
            message = f"cluster {name} waits for itself"
        yield IMPOSSIBLE.refusal(message, repo_layout.place(file.at(*path)), path=path)


def _names(file: File) -> Iterator[tuple[Path, str]]:
    """The names in `after`, each with its path."""
    value = file.value.get(_KEY)
    path: Path = (_KEY,)
    if isinstance(value, Mapping):
        value, path = value.get("clusters"), (_KEY, "clusters")
    for number, one in enumerate(value if isinstance(value, list) else ()):
        if isinstance(one, str):
            yield (*path, number), one


def _before(file: File) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for _, one in _names(file)))


def _seconds(file: File, key: str, default: float) -> float:
    value: Any = file.section(_KEY).get(key)
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(duration.seconds(value))
    return default


def _waves(before: Mapping[str, tuple[str, ...]]) -> Mapping[str, int]:
    """The wave of each cluster, one more than the last wave before it; without clusters in or after
    a cycle.
    """
    waves: dict[str, int] = {}
    rest = {
        name: {earlier for earlier in names if earlier in before} for name, names in before.items()
    }
    wave = 0
    while ready := [name for name, names in rest.items() if not names - waves.keys()]:
        wave += 1
        waves |= dict.fromkeys(ready, wave)
        rest = {name: names for name, names in rest.items() if name not in waves}
    return waves


def _cycle(name: str, before: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The clusters of a shortest cycle that begins and ends with this one; empty without a
    cycle.
    """
    paths: list[tuple[str, ...]] = [(name,)]
    seen = set[str]()
    while paths:
        path = paths.pop(0)
        for earlier in before.get(path[-1], ()):
            if earlier == name:
                return (*path, earlier)
            if earlier not in seen:
                seen.add(earlier)
                paths.append((*path, earlier))
    return ()
