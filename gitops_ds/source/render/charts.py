"""The charts of `helm:` in the agents' source.yaml; `renderers` renders them before the snapshot is
read.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from gitops_ds.core.finding import Finding
from gitops_ds.core.sources.source_tree import Chart, Remote, SourceTree
from gitops_ds.source.render import layout
from gitops_ds.source.render.layout import File, Layout
from gitops_ds.source.rules import NOT_RENDERED

# An exact version, as Helm requires (https://semver.org): a range could select another chart later.
_EXACT = re.compile(r"v?\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Functions of Helm and Sprig whose result differs in each run, inside an action.
# https://helm.sh/docs/chart_template_guide/function_list/
_VARYING = re.compile(
    rb"\{\{(?:(?!\}\}).)*?\b(?:rand\w+|uuidv4|now|ago|gen[A-Z]\w+|htpasswd|bcrypt|shuffle|encryptAES)\b",
    re.DOTALL,
)
_NEAR = frozenset(["localhost", "127.0.0.1", "::1"])


def charts(snapshot: SourceTree) -> tuple[Chart, ...]:
    """The charts of all agents; an invalid one has a finding."""
    repo_layout = layout.read(snapshot)
    sources = [
        (name, repo_layout.read(PurePosixPath("agents", name, "source.yaml")))
        for name in repo_layout.agents
    ]
    return tuple(
        _chart(name, source, repo_layout) for name, source in sources if source.section("helm")
    )


def may_vary(snapshot: SourceTree) -> bool:
    """Whether the output of a rendered chart may differ in another run: a file of it has a function
    of random values or of the time, or its files are not in the snapshot.
    """
    if not snapshot.charts:
        return False
    files = snapshot.files
    for chart in charts(snapshot):
        if isinstance(chart.where, Remote) or chart.where.suffix == ".tgz":
            return True
        own = [path for path in files if chart.where in path.parents]
        if any(_VARYING.search(files[path]) for path in (*own, *chart.values_files, chart.file)):
            return True
    return False


def inside(folder: PurePosixPath, relative: str) -> PurePosixPath | None:
    """The normalized path; None if it is outside of the repository."""
    whole = posixpath.normpath(posixpath.join(str(folder), relative))
    return None if whole.startswith(("/", "../")) or whole == ".." else PurePosixPath(whole)


def _chart(name: str, source: File, repo_layout: Layout) -> Chart:
    file = PurePosixPath(source.name)
    helm = source.section("helm")
    findings: list[Finding] = []
    where = (
        _remote(source, repo_layout, findings)
        if _is_remote(source)
        else _local(source, repo_layout, findings)
    )
    api_versions = layout.texts(helm.get("apiVersions"))
    return Chart(
        file=file,
        where=where,
        release=source.text("helm", "releaseName") or name,
        namespace=source.text("helm", "namespace") or _namespace(source, repo_layout, findings),
        values=source.section("helm", "values"),
        values_files=tuple(_values_files(source, repo_layout, findings)),
        kube_version=source.text("helm", "kubeVersion"),
        api_versions=api_versions,
        findings=tuple(findings),
    )


def _is_remote(source: File) -> bool:
    return bool(source.text("helm", "repo")) or "://" in source.text("helm", "chart")


def _remote(source: File, repo_layout: Layout, findings: list[Finding]) -> Remote:
    chart, repo = source.text("helm", "chart"), source.text("helm", "repo")
    version, digest = source.text("helm", "version"), source.text("helm", "digest")
    address = f"{repo.rstrip('/')}/{chart}" if repo.startswith("oci://") else repo or chart
    problem = _address_problem(address, chart, bool(digest))
    at = "repo" if repo else "chart"
    if not problem and not _EXACT.fullmatch(version):
        problem, at = (
            "set an exact version, such as 1.2.3: with a range, or none, the chart may change",
            "version",
        )
    if not problem and digest and not _DIGEST.fullmatch(digest):
        problem, at = "digest must be sha256: and 64 hexadecimal digits", "digest"
    if problem:
        findings.append(NOT_RENDERED.refusal(problem, repo_layout.place(source.at("helm", at))))
    return Remote(address, chart.rsplit("/", 1)[-1], version, digest)


def _address_problem(address: str, chart: str, pinned: bool) -> str:
    """The error in the address of a remote chart; empty if it is valid."""
    if "${" in address + chart:
        return "parameters are not allowed in a chart's address"
    try:
        parts = urlsplit(address)
        host, login = parts.hostname or "", parts.username or parts.password
    except ValueError:
        return "invalid URL"
    if parts.scheme not in ("oci", "https", "http") or not host:
        return (
            "chart must be a path of the repository, oci://HOST/PATH, or the https:// address "
            "of a chart repository in repo:"
        )
    if parts.scheme != "oci" and not (chart and "/" not in chart and chart != address):
        return (
            "write the address of the chart repository into repo:, and the name of the chart into "
            "chart:"
        )
    if login or parts.query or parts.fragment:
        return "the address must not contain a user, password or query, which can be secret"
    if parts.scheme == "http" and host not in _NEAR and not pinned:
        return "http:// can be modified in transit: use https://, or set the digest"
    return ""


def _local(source: File, repo_layout: Layout, findings: list[Finding]) -> PurePosixPath:
    chart = source.text("helm", "chart")
    file = PurePosixPath(source.name)
    path = inside(file.parent, chart) if chart else None
    archive = path is not None and path.suffix == ".tgz"
    if path is None:
        problem = "the chart must be inside the repository" if chart else "chart is required"
    elif archive and path not in repo_layout.snapshot.files:
        problem = f"there is no archive {path}; symbolic links are not followed"
    elif not archive and path / "Chart.yaml" not in repo_layout.snapshot.files:
        problem = (
            f"there is no {path / 'Chart.yaml'}; chart: is a directory or a .tgz beside this "
            "file, or oci://…"
        )
    elif not archive and file.is_relative_to(path):
        problem = "the chart's directory contains this file: move the chart to its own directory"
    else:
        return path
    findings.append(
        NOT_RENDERED.refusal(problem, repo_layout.place(source.at("helm", "chart"), key=not chart))
    )
    return path or PurePosixPath(chart or ".")


def _values_files(
    source: File, repo_layout: Layout, findings: list[Finding]
) -> Iterator[PurePosixPath]:
    for index, text in enumerate(layout.texts(source.section("helm").get("valuesFiles"))):
        path = inside(PurePosixPath(source.name).parent, text)
        if path is not None and path in repo_layout.snapshot.files:
            yield path
            continue
        problem = (
            "this file must be inside the repository"
            if path is None
            else f"there is no file {path}; symbolic links are not followed, and nothing is fetched"
        )
        findings.append(
            NOT_RENDERED.refusal(
                problem, repo_layout.place(source.at("helm", "valuesFiles", index))
            )
        )


def _namespace(source: File, repo_layout: Layout, findings: list[Finding]) -> str:
    """The default namespace, if it is the same in every cluster: only Helm itself can write it into
    templates.
    """
    general = repo_layout.settings.text("defaults", "namespace")
    namespaces = {
        cluster.text("namespace") or general for cluster in repo_layout.clusters.values()
    } or {general}
    if len(namespaces) == 1 and (only := next(iter(namespaces))):
        return only
    why = "the clusters have several" if len(namespaces) > 1 else "nothing else does"
    problem = f"set helm.namespace, the release's namespace for templates ({why})"
    findings.append(NOT_RENDERED.refusal(problem, repo_layout.place(source.at("helm"), key=True)))
    return ""
