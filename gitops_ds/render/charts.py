"""What `helm:` of the agents' source.yaml asks for: read here, rendered by whoever prepares the
snapshot.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from gitops_ds.model.chart import Chart, Remote
from gitops_ds.model.finding import Finding, refusal
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.render import layout
from gitops_ds.render.layout import File, Layout

# A version that names one chart for good: https://semver.org, as Helm wants it. A range would be
# another chart tomorrow.
_EXACT = re.compile(r"v?\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NEAR = frozenset(["localhost", "127.0.0.1", "::1"])


def charts(snapshot: Snapshot) -> tuple[Chart, ...]:
    """The charts of all agents; one that can't be meant carries the finding that says so."""
    found = layout.read(snapshot)
    sources = [
        (name, found.read(PurePosixPath("agents", name, "source.yaml"))) for name in found.agents
    ]
    return tuple(_chart(name, source, found) for name, source in sources if source.section("helm"))


def inside(folder: PurePosixPath, relative: str) -> PurePosixPath | None:
    """Where a relative path leads, None where that is outside of the repository."""
    whole = posixpath.normpath(posixpath.join(str(folder), relative))
    return None if whole.startswith(("/", "../")) or whole == ".." else PurePosixPath(whole)


def _chart(name: str, source: File, found: Layout) -> Chart:
    file = PurePosixPath(source.name)
    told = source.section("helm")
    findings: list[Finding] = []
    where = (
        _remote(source, found, findings) if _is_remote(source) else _local(source, found, findings)
    )
    api_versions = layout.texts(told.get("apiVersions"))
    return Chart(
        file=file,
        where=where,
        release=source.text("helm", "releaseName") or name,
        namespace=source.text("helm", "namespace") or _namespace(source, found, findings),
        values=source.section("helm", "values"),
        values_files=tuple(_values_files(source, found, findings)),
        kube_version=source.text("helm", "kubeVersion"),
        api_versions=api_versions,
        findings=tuple(findings),
    )


def _is_remote(source: File) -> bool:
    return bool(source.text("helm", "repo")) or "://" in source.text("helm", "chart")


def _remote(source: File, found: Layout, findings: list[Finding]) -> Remote:
    chart, repo = source.text("helm", "chart"), source.text("helm", "repo")
    version, digest = source.text("helm", "version"), source.text("helm", "digest")
    address = f"{repo.rstrip('/')}/{chart}" if repo.startswith("oci://") else repo or chart
    problem = _address_problem(address, chart, bool(digest))
    at = "repo" if repo else "chart"
    if not problem and not _EXACT.fullmatch(version):
        problem, at = (
            "say which version, such as 1.2.3: a range, or none, would be another chart tomorrow",
            "version",
        )
    if not problem and digest and not _DIGEST.fullmatch(digest):
        problem, at = "a digest is sha256: and 64 hexadecimal digits", "digest"
    if problem:
        findings.append(refusal("DS801", problem, found.place(source.at("helm", at))))
    return Remote(address, chart.rsplit("/", 1)[-1], version, digest)


def _address_problem(address: str, chart: str, pinned: bool) -> str:
    """What is wrong with the address of a chart elsewhere; empty where nothing is."""
    if "${" in address + chart:
        return "parameters are not put into a chart's address"
    try:
        parts = urlsplit(address)
        host, login = parts.hostname or "", parts.username or parts.password
    except ValueError:
        return "this is no URL"
    if parts.scheme not in ("oci", "https", "http") or not host:
        return (
            "a chart comes from the repository, from oci://HOST/PATH, or from the https:// "
            "address of a chart repository in repo:"
        )
    if parts.scheme != "oci" and not (chart and "/" not in chart and chart != address):
        return (
            "write the address of the chart repository into repo:, and the name of the chart into "
            "chart:"
        )
    if login or parts.query or parts.fragment:
        return "no user, password or query in the address: it is not the place for secrets"
    if parts.scheme == "http" and host not in _NEAR and not pinned:
        return "http:// can be changed on the way: use https://, or say the digest"
    return ""


def _local(source: File, found: Layout, findings: list[Finding]) -> PurePosixPath:
    chart = source.text("helm", "chart")
    file = PurePosixPath(source.name)
    path = inside(file.parent, chart) if chart else None
    archive = path is not None and path.suffix == ".tgz"
    if path is None:
        problem = (
            "the chart is outside of the repository: only what is in it is read"
            if chart
            else "say which chart"
        )
    elif archive and path not in found.snapshot.files:
        problem = f"there is no archive {path}; a symbolic link is not followed"
    elif not archive and path / "Chart.yaml" not in found.snapshot.files:
        problem = (
            f"there is no {path / 'Chart.yaml'}; chart: is a directory or a .tgz beside this "
            "file, or oci://…"
        )
    elif not archive and file.is_relative_to(path):
        problem = "the chart's directory holds this file: put the chart into a directory of its own"
    else:
        return path
    findings.append(
        refusal("DS801", problem, found.place(source.at("helm", "chart"), key=not chart))
    )
    return path or PurePosixPath(chart or ".")


def _values_files(source: File, found: Layout, findings: list[Finding]) -> Iterator[PurePosixPath]:
    for index, text in enumerate(layout.texts(source.section("helm").get("valuesFiles"))):
        path = inside(PurePosixPath(source.name).parent, text)
        if path is not None and path in found.snapshot.files:
            yield path
            continue
        problem = (
            "this file is outside of the repository: only what is in it is read"
            if path is None
            else f"there is no file {path}; a symbolic link is not followed, and nothing is fetched"
        )
        findings.append(
            refusal("DS801", problem, found.place(source.at("helm", "valuesFiles", index)))
        )


def _namespace(source: File, found: Layout, findings: list[Finding]) -> str:
    """The one that objects without one get in every cluster: templates write it where only Helm
    could.
    """
    general = found.settings.text("defaults", "namespace")
    wanted = {cluster.text("namespace") or general for cluster in found.clusters.values()} or {
        general
    }
    if len(wanted) == 1 and (only := next(iter(wanted))):
        return only
    why = "the clusters have several" if len(wanted) > 1 else "nothing else does"
    problem = f"say helm.namespace, the release's namespace, which templates may write ({why})"
    findings.append(refusal("DS801", problem, found.place(source.at("helm"), key=True)))
    return ""
