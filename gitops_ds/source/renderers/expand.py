"""Renders a snapshot's kustomizations, with the installed kustomize or kubectl, and its charts.

kustomize runs on a copy in an owner-only directory and can't fetch anything: it has no network,
remote references in kustomizations and plugin configurations are rejected before, and git is not on
its PATH. No plugins, no Helm, no files outside of a kustomization's root.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.finding import Finding, Place
from gitops_ds.core.sources.source_tree import Chart, SourceTree
from gitops_ds.core.values import replace
from gitops_ds.source.render import kustomization
from gitops_ds.source.render.kustomization import Kustomization, Reached
from gitops_ds.source.renderers import disk_cache, error_messages, process
from gitops_ds.source.renderers.process import Means
from gitops_ds.source.rules import KUSTOMIZE_FAILED, NO_KUSTOMIZE, NOT_RENDERED
from gitops_ds.source.sandbox import memory

# Must change when kustomize is run differently.
_WAY = "kustomize 1"


class Which(msgspec.Struct, frozen=True):
    """The kustomizations and charts to render: `skip` excludes files; `also` are bases of others to
    build as well.
    """

    skip: Callable[[PurePosixPath], bool] = lambda _: False
    also: frozenset[PurePosixPath] = frozenset()
    charts: tuple[Chart, ...] = ()


ALL = Which()


async def expand(snapshot: SourceTree, which: Which = ALL, means: Means = Means()) -> SourceTree:  # noqa: B008  frozen
    """The snapshot with `expanded` for each top-level kustomization, `charts`, and the input files
    of both as `consumed`.

    An error is a blocking finding at the file of the kustomization or chart; its input files count
    as consumed. Raises ExpansionFailed if the copy can't be written.
    """
    means = means.timed()
    if which.charts:
        from gitops_ds.source.renderers import helm  # not loaded for a repository without charts

        snapshot = await helm.expand(snapshot, which.charts, means)
    kustomizations = kustomization.find(
        snapshot.files, lambda path: path in snapshot.consumed or which.skip(path)
    )
    if not kustomizations:
        return snapshot
    from gitops_ds.yaml.provenance import kustomize as provenance_kustomize

    tops = dict.fromkeys(
        (*kustomization.tops(kustomizations), *sorted(d for d in which.also if d in kustomizations))
    )
    cycles = {ring[0]: ring for ring in kustomization.cycles(kustomizations, tops)}
    strict = means.allowed.kustomize and await asyncio.to_thread(process.isolation) == "none"
    reached = {
        top: kustomization.reach(top, kustomizations, snapshot.files, strict=strict)
        for top in (*tops, *cycles)
    }
    for first, cycle in cycles.items():
        finding = kustomization.of_cycle(cycle, kustomizations, snapshot.files)
        reached[first].findings.append(finding)
    consumed = {f for r in reached.values() for f in r.files} | {
        f for f in snapshot.files if _of_component(f, kustomizations)
    }
    findings = [f for r in reached.values() for f in r.findings]
    buildable = {
        top: reached[top] for top in tops if not any(f.refused for f in reached[top].findings)
    }
    expanded, placed = dict(snapshot.expanded), dict(snapshot.placed)
    for top, result in (await _build(buildable, kustomizations, snapshot.files, means)).items():
        if isinstance(result, Finding):
            findings.append(result)
        else:
            expanded[top] = result
            placed[top] = provenance_kustomize.placed(
                result, reached[top].resources, reached[top].patches, snapshot.files
            )
    return replace(
        snapshot,
        findings=(*snapshot.findings, *dict.fromkeys(findings)),
        expanded=expanded,
        placed=placed,
        consumed=snapshot.consumed | consumed,
    )


def _of_component(
    file: PurePosixPath, kustomizations: Mapping[PurePosixPath, Kustomization]
) -> bool:
    """Whether the file is in an unused component: its patches have no target."""
    return any(
        k.component and file.is_relative_to(directory) for directory, k in kustomizations.items()
    )


async def _build(
    tops: Mapping[PurePosixPath, Reached],
    kustomizations: Mapping[PurePosixPath, Kustomization],
    files: Mapping[PurePosixPath, bytes],
    means: Means,
) -> dict[PurePosixPath, bytes | Finding]:
    command = program(means.search)
    if not tops or not means.allowed.kustomize or command is None:
        return {
            top: _not_built(kustomizations[top], allowed=means.allowed.kustomize) for top in tops
        }
    keys = await asyncio.to_thread(_keys, tops, files, command)
    cache = means.output_cache
    cached = {top: await asyncio.to_thread(disk_cache.read, cache, keys[top]) for top in tops}
    made: dict[PurePosixPath, bytes | Finding] = {
        top: data for top, data in cached.items() if data is not None
    }
    missing = [top for top in tops if top not in made]
    if not missing:
        return made
    gate = asyncio.Semaphore(memory.here().programs)
    try:
        with tempfile.TemporaryDirectory(prefix="gitops-ds-") as name:
            root = await asyncio.to_thread(_copy, Path(name), files)

            async def one(top: PurePosixPath) -> bytes | Finding:
                async with gate:
                    return await _run(command, root, kustomizations[top], files, means)

            made |= dict(zip(missing, await asyncio.gather(*map(one, missing)), strict=True))
    except OSError as error:
        raise errors.ExpansionFailed(
            f"the copy for kustomize can't be written: {error.strerror}; free some space"
        ) from None
    for top in missing:
        if isinstance(result := made[top], bytes):
            await asyncio.to_thread(disk_cache.write, cache, keys[top], result)
    return made


def _not_built(of: Kustomization, *, allowed: bool) -> Finding:
    if not allowed:
        message = "kustomize is not allowed to run: allow it with --allow kustomize"
        return NOT_RENDERED.refusal(message, Place(str(of.file)))
    message = (
        "neither kustomize nor kubectl is installed; install one, or commit the output of "
        "kustomize build"
    )
    return NO_KUSTOMIZE.refusal(message, Place(str(of.file)))


def _keys(
    tops: Mapping[PurePosixPath, Reached],
    files: Mapping[PurePosixPath, bytes],
    command: tuple[str, ...],
) -> dict[PurePosixPath, str]:
    """The hash of the inputs of each build: every file below the directories that it references."""
    identity = process.identity(command[0])
    keys = {}
    for top, reached in tops.items():
        named = sorted(path for path in files if not reached.directories.isdisjoint(path.parents))
        contents = [part for path in named for part in (str(path), files[path])]
        keys[top] = disk_cache.key(_WAY, identity, str(top), *contents)
    return keys


def program(search: str | None = None) -> tuple[str, ...] | None:
    """The command to build a kustomization: `kustomize build` or `kubectl kustomize`; None without
    either.
    """
    if kustomize := process.found("kustomize", search):
        return (kustomize, "build")
    if kubectl := process.found("kubectl", search):
        return (kubectl, "kustomize")
    return None


def _copy(directory: Path, files: Mapping[PurePosixPath, bytes]) -> Path:
    root = directory.resolve()
    copy = root / "copy"
    for path, data in files.items():
        target = copy / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    (root / "empty").mkdir()
    return root


async def _run(
    command: tuple[str, ...],
    root: Path,
    of: Kustomization,
    files: Mapping[PurePosixPath, bytes],
    means: Means,
) -> bytes | Finding:
    directory = root / "copy" / of.file.parent
    result = await process.run(
        (*command, str(directory)), process.environment(root / "empty"), means, root
    )
    if result.problem:
        return KUSTOMIZE_FAILED.refusal(
            f"kustomize {result.problem}: reduce the kustomization", Place(str(of.file))
        )
    if result.failed:
        message = error_messages.kustomize_sentence(result.stderr, str(root / "copy"))
        return KUSTOMIZE_FAILED.refusal(
            f"kustomize failed: {message}", error_messages.kustomize_place(message, of, files)
        )
    return result.output
