"""The charts of source.yaml files, rendered by the installed helm.

`helm template` runs on a copy of the chart in an owner-only directory, without cluster, plugins,
repositories, network and DNS. A remote chart is fetched before, by a separate `helm pull`, and only
if the network is allowed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import msgspec

from gitops_ds.core import errors, objects
from gitops_ds.core.finding import Finding, Place
from gitops_ds.core.sources.repository_limits import MIB
from gitops_ds.core.sources.source_tree import Chart, Files, Remote, SourceTree
from gitops_ds.core.values import replace
from gitops_ds.source.renderers import disk_cache, error_messages, process
from gitops_ds.source.renderers.process import Means
from gitops_ds.source.rules import NOT_RENDERED
from gitops_ds.source.sandbox import memory
from gitops_ds.yaml import parser
from gitops_ds.yaml.provenance import helm

# Must change when helm is run differently with the same input.
_WAY = "helm 1"
# The index of a large chart repository has tens of MiB.
_FETCHED = 64 * MIB
_DIGEST = re.compile(r"^Digest:\s*(sha256:[0-9a-f]{64})\s*$", re.MULTILINE)


async def expand(snapshot: SourceTree, charts: Sequence[Chart], means: Means) -> SourceTree:
    """The snapshot with `charts` for each chart that could be rendered, a finding for each other,
    and their files consumed.

    Raises ExpansionFailed if the copy can't be written.
    """
    gate = asyncio.Semaphore(memory.here().programs)

    async def one(chart: Chart) -> bytes | tuple[Finding, ...]:
        if any(finding.refused for finding in chart.findings):
            return chart.findings
        async with gate:
            return await _one(chart, snapshot.files, means)

    try:
        made = await asyncio.gather(*map(one, charts))
    except OSError as error:
        raise errors.ExpansionFailed(
            f"no copy for helm can be written: {error.strerror}; free some space"
        ) from None
    rendered, findings = dict(snapshot.charts), list(snapshot.findings)
    for chart, result in zip(charts, made, strict=True):
        if isinstance(result, bytes):
            rendered[chart.file] = helm.placed(chart, result, snapshot.files)
        else:
            findings += result
    consumed = {
        file for chart in charts for file in (*_own(chart, snapshot.files), *chart.values_files)
    }
    consumed |= _beside(charts, snapshot.files)
    return replace(
        snapshot, charts=rendered, findings=tuple(findings), consumed=snapshot.consumed | consumed
    )


def _own(chart: Chart, files: Files) -> list[PurePosixPath]:
    """The files of a local chart in the snapshot."""
    where = chart.where
    if isinstance(where, Remote) or any(finding.refused for finding in chart.findings):
        return []
    return [path for path in files if path == where or where in path.parents]


def _beside(charts: Sequence[Chart], files: Files) -> set[PurePosixPath]:
    """The files of all charts in the agents' directories, also of unreferenced ones: templates are
    not manifests.
    """
    agents = {chart.file.parent for chart in charts}
    folders = {
        path.parent
        for path in files
        if path.name == "Chart.yaml" and not agents.isdisjoint(path.parent.parents)
    }
    return {path for path in files if not folders.isdisjoint(path.parents)} if folders else set()


async def _one(chart: Chart, files: Files, means: Means) -> bytes | tuple[Finding, ...]:
    """helm's output, or the findings."""
    if not means.allowed.helm:
        problem = "this agent needs helm, which is not allowed to run: allow it with --allow helm"
        return (_refused(chart, files, problem),)
    program = process.found("helm", means.search)
    if program is None:
        problem = "helm is not installed; install it, or commit the output of helm template"
        return (_refused(chart, files, problem),)
    content = await _content(chart, files, program, means)
    if isinstance(content, Finding):
        return (content,)
    options = _options(chart)
    identity = await asyncio.to_thread(process.identity, program)
    parts = [part for path in sorted(content.files) for part in (str(path), content.files[path])]
    key = disk_cache.key(
        _WAY,
        identity,
        chart.release,
        str(len(options)),
        *options,
        str(len(content.values)),
        *content.values,
        *parts,
    )
    cached = await asyncio.to_thread(disk_cache.read, means.output_cache, key)
    if cached is not None:
        return cached
    made = await _template(chart, files, [program, "template", *options], content, means)
    if isinstance(made, bytes):
        await asyncio.to_thread(disk_cache.write, means.output_cache, key, made)
    return made


def _options(chart: Chart) -> list[str]:
    """Options joined with their values, so that a value with a leading dash is not an option."""
    versions = [f"--api-versions={version}" for version in chart.api_versions]
    versions += [f"--kube-version={chart.kube_version}"] if chart.kube_version else []
    return ["--include-crds", f"--namespace={chart.namespace}", *versions]


class _ChartInput(msgspec.Struct, frozen=True):
    """The files of a chart and the contents of its values files, in order."""

    files: Files
    values: list[bytes]


async def _content(chart: Chart, files: Files, program: str, means: Means) -> _ChartInput | Finding:
    """The files of the chart, fetched if it is remote, and its values."""
    if isinstance(chart.where, Remote):
        archive = await _fetched(chart, chart.where, files, program, means)
        if isinstance(archive, Finding):
            return archive
        own = {PurePosixPath("chart.tgz"): archive}
    else:
        folder = chart.where if chart.where.suffix != ".tgz" else chart.where.parent
        own = {
            PurePosixPath("chart") / path.relative_to(folder): files[path]
            for path in _own(chart, files)
        }
    values = [files[path] for path in chart.values_files]
    values += [json.dumps(chart.values, sort_keys=True).encode()] if chart.values else []
    return _ChartInput(own, values)


async def _template(
    chart: Chart, files: Files, command: list[str], chart_input: _ChartInput, means: Means
) -> bytes | tuple[Finding, ...]:
    own, values = chart_input.files, chart_input.values
    with tempfile.TemporaryDirectory(prefix="gitops-ds-") as name:
        root = await asyncio.to_thread(_write, Path(name), own, values)
        # An archive of the repository keeps its name; a directory is `chart`.
        archive = next((path for path in own if path.suffix == ".tgz" and len(own) == 1), None)
        location = root / (archive or "chart")
        layers = [f"--values={root / 'values' / str(number)}" for number in range(len(values))]
        ended = await process.run(
            [*command, *layers, "--", chart.release, str(location)],
            _environment(root),
            means,
            root,
        )
    if ended.problem:
        return (_refused(chart, files, f"helm {ended.problem}: reduce the chart"),)
    if ended.failed:
        return error_messages.findings(ended.stderr, chart, files, str(root))
    return ended.output


def _environment(root: Path, *, network: bool = False) -> dict[str, str]:
    """helm's directories, all in the copy. https://helm.sh/docs/helm/helm/"""
    home = root / "empty"
    places = {
        "HELM_CACHE_HOME": "cache",
        "HELM_CONFIG_HOME": "config",
        "HELM_DATA_HOME": "data",
        "HELM_PLUGINS": "plugins",
    }
    places |= {
        "HELM_REGISTRY_CONFIG": "registry.json",
        "HELM_REPOSITORY_CONFIG": "repositories.yaml",
    }
    places |= {"HELM_REPOSITORY_CACHE": "repositories", "KUBECONFIG": "kubeconfig"}
    own = {variable: str(home / place) for variable, place in places.items()}
    return {**process.environment(home, network=network), **own}


def _write(directory: Path, own: Files, values: Sequence[bytes]) -> Path:
    root = directory.resolve()
    (root / "empty").mkdir()
    (root / "values").mkdir()
    for path, data in own.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    for number, data in enumerate(values):
        (root / "values" / str(number)).write_bytes(data)
    return root


async def _fetched(
    chart: Chart, remote: Remote, files: Files, program: str, means: Means
) -> bytes | Finding:
    """The archive of a remote chart, from the cache or fetched."""
    key = disk_cache.key("chart 1", remote.address, remote.name, remote.version, remote.digest)
    cached = await asyncio.to_thread(disk_cache.read, means.cache, key)
    if cached is not None:
        return cached
    subject = f"chart {remote.name} {remote.version}"
    if not means.allowed.network:
        return _refused(
            chart,
            files,
            f"{subject} is remote, and the network is not allowed: allow it with --allow "
            "helm,network, or commit it",
        )
    with tempfile.TemporaryDirectory(prefix="gitops-ds-") as name:
        root = await asyncio.to_thread(_write, Path(name), {}, ())
        larger = replace(means, limits=replace(means.limits, bytes=_FETCHED))
        ended = await process.run(
            _pull(program, remote, root), _environment(root, network=True), larger, network=True
        )
        archives = await asyncio.to_thread(lambda: sorted(root.glob("*.tgz")))
        if ended.problem:
            return _refused(chart, files, f"helm {ended.problem} while fetching {subject}")
        if ended.failed or len(archives) != 1:
            return _refused(
                chart,
                files,
                f"{subject} could not be fetched: "
                f"{error_messages.helm_sentence(ended.stderr, str(root))}",
            )
        archive = await asyncio.to_thread(archives[0].read_bytes)
    digest = _digest_of(remote, archive, ended.output.decode("utf-8", "replace") + ended.stderr)
    if remote.digest and digest != remote.digest:
        return _refused(
            chart,
            files,
            f"{subject} has the digest {digest or '(unknown)'}, not the required one",
            "digest",
        )
    await asyncio.to_thread(disk_cache.write, means.cache, key, archive)
    return archive


def _pull(program: str, remote: Remote, root: Path) -> list[str]:
    command = [program, "pull", f"--version={remote.version}", f"--destination={root}"]
    if not remote.address.startswith("oci://"):
        return [*command, f"--repo={remote.address}", "--", remote.name]
    host = urlsplit(remote.address).hostname
    plain = ["--plain-http"] if host in ("localhost", "127.0.0.1", "::1") else []
    return [*command, *plain, "--", remote.address]


def _digest_of(remote: Remote, archive: bytes, output: str) -> str:
    """For OCI the manifest's digest in helm's output; else that of the archive."""
    if not remote.address.startswith("oci://"):
        return f"sha256:{hashlib.sha256(archive).hexdigest()}"
    match = _DIGEST.search(output)
    return match[1] if match else ""


def _refused(chart: Chart, files: Files, message: str, at: str = "chart") -> Finding:
    path: objects.Path = ("helm", at)
    place = (
        parser.place(str(chart.file), files[chart.file], 0, path)
        if chart.file in files
        else Place(str(chart.file))
    )
    return NOT_RENDERED.refusal(message, place)
