"""kustomize and helm reach no server, not even on this machine: a server on loopback never sees a
request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pytest

from gitops_ds.core.finding import Finding
from gitops_ds.core.sources.repository_limits import RepositoryLimits
from gitops_ds.core.sources.source_tree import Chart, SourceTree
from gitops_ds.source.render import charts, kustomization
from gitops_ds.source.renderers import expand
from gitops_ds.source.renderers import process as renderers_process
from gitops_ds.source.renderers.process import Means
from tests import renderers

pytestmark = pytest.mark.renderers


@dataclass
class Server:
    port: int
    seen: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/configz"


@pytest.fixture
def server() -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        git_server = Server(listening.getsockname()[1])

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    git_server.seen.append(b"connected")
                    with connection, contextlib.suppress(OSError):
                        connection.recv(4096)
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nSECRET")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield git_server
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def generator(url: str, **more: object) -> str:
    body = {
        "apiVersion": "builtin",
        "kind": "ConfigMapGenerator",
        "metadata": {"name": "loot"},
        "name": "loot",
        **more,
    }
    return json.dumps(body).replace("URL", url)


def patch(url: str) -> str:
    return json.dumps(
        {
            "apiVersion": "builtin",
            "kind": "PatchTransformer",
            "metadata": {"name": "p"},
            "path": url,
        }
    )


CONFIG_MAP = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
# By name: the files of a repository in which URL is the server's.
FETCHING: dict[str, dict[str, str]] = {
    "a resource": {"k/kustomization.yaml": "resources: ['URL']"},
    "a resource in a base": {
        "k/kustomization.yaml": "resources: [base]",
        "k/base/kustomization.yaml": "resources: ['URL']",
    },
    "a resource in a component": {
        "k/kustomization.yaml": "components: [c]",
        "k/c/kustomization.yaml": "{kind: Component, apiVersion: "
        "kustomize.config.k8s.io/v1alpha1, resources: ['URL']}",
    },
    "a generator's file": {
        "k/kustomization.yaml": "configMapGenerator: [{name: a, files: ['b=URL']}]"
    },
    "a generator's env": {"k/kustomization.yaml": "secretGenerator: [{name: a, envs: ['URL']}]"},
    "a patch": {
        "k/kustomization.yaml": "resources: [a.yaml]\npatches: [{path: 'URL'}]",
        "k/a.yaml": CONFIG_MAP,
    },
    "configurations": {"k/kustomization.yaml": "configurations: ['URL']"},
    "openapi": {"k/kustomization.yaml": "openapi: {path: 'URL'}"},
    "a plugin's files": {
        "k/kustomization.yaml": "generators: [gen.yaml]",
        "k/gen.yaml": generator("URL", files=["b=URL"]),
    },
    "a plugin's envs": {
        "k/kustomization.yaml": "generators: [gen.yaml]",
        "k/gen.yaml": generator("URL", envs=["URL"]),
    },
    "a plugin in a folder": {
        "k/kustomization.yaml": "generators: [gens]",
        "k/gens/kustomization.yaml": "resources: [gen.yaml]",
        "k/gens/gen.yaml": generator("URL", files=["b=URL"]),
    },
    "a plugin in place": {
        "k/kustomization.yaml": json.dumps(
            {"generators": [generator("URL", files=["b=URL"]) + "\n"]}
        )
    },
    "a transformer's patch": {
        "k/kustomization.yaml": "resources: [a.yaml]\ntransformers: [t.yaml]",
        "k/a.yaml": CONFIG_MAP,
        "k/t.yaml": patch("URL"),
    },
    "a validator": {
        "k/kustomization.yaml": "resources: [a.yaml]\nvalidators: ['URL']",
        "k/a.yaml": CONFIG_MAP,
    },
    "a chart": {"k/kustomization.yaml": "helmCharts: [{name: a, repo: 'URL', version: '1'}]"},
}


def files(name: str, url: str) -> dict[PurePosixPath, bytes]:
    return {
        PurePosixPath(path): text.replace("URL", url).encode()
        for path, text in FETCHING[name].items()
    }


def expanded(
    found: Mapping[PurePosixPath, bytes], of: tuple[Chart, ...] = ()
) -> tuple[tuple[Finding, ...], bytes]:
    made = asyncio.run(
        expand.expand(
            SourceTree(None, found),
            expand.Which(charts=of),
            Means(search=str(renderers.programs())),
        )
    )
    return made.findings, b"".join(made.expanded.values())


@pytest.mark.parametrize("name", FETCHING)
def test_a_kustomization_fetches_nothing(server: Server, name: str) -> None:
    findings, made = expanded(files(name, server.url))
    assert [finding for finding in findings if finding.refused], name
    assert b"SECRET" not in made
    assert not server.seen


@pytest.mark.parametrize("name", FETCHING)
@pytest.mark.parametrize("way", ["seccomp", "namespace"])
def test_kustomize_reaches_no_server_either_way_were_nothing_refused(
    server: Server, tmp_path: Path, name: str, way: str
) -> None:
    for path, data in files(name, server.url).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    ended = confined([str(renderers.programs() / "kustomize"), "build", str(tmp_path / "k")], way)
    assert ended.failed
    assert not server.seen


@pytest.mark.parametrize("name", FETCHING)
def test_without_network_isolation_every_url_is_rejected_before_a_program_runs(
    server: Server, name: str
) -> None:
    kustomizations = kustomization.find(files(name, server.url), lambda _: False)
    reached = [
        kustomization.reach(top, kustomizations, files(name, server.url), strict=True)
        for top in kustomizations
    ]
    assert any(finding.refused for one in reached for finding in one.findings)


def confined(command: list[str], way: str) -> renderers_process.ProgramResult:
    async def run() -> renderers_process.ProgramResult:
        words = renderers_process._confined(command, RepositoryLimits(seconds=30), way)
        process = await asyncio.create_subprocess_exec(
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": "/nowhere", "HOME": "/nowhere"},
        )
        output, errors = await process.communicate()
        return renderers_process.ProgramResult(
            output, errors.decode(), failed=process.returncode != 0
        )

    return asyncio.run(run())


@pytest.mark.parametrize("way", ["seccomp", "namespace"])
def test_no_socket_leads_anywhere(server: Server, way: str) -> None:
    script = f"import socket; socket.create_connection(('127.0.0.1', {server.port}), 5)"
    ended = confined([sys.executable, "-I", "-c", script], way)
    assert ended.failed
    assert "Error" in ended.stderr
    assert confined(
        [sys.executable, "-I", "-c", "print('runs')"], way
    ) == renderers_process.ProgramResult(b"runs\n")
    assert not server.seen


def test_here_programs_have_no_network() -> None:
    assert renderers_process.isolation() in ("seccomp", "namespace")


def test_a_chart_whose_schema_refers_to_a_server_does_not_reach_it(server: Server) -> None:
    schema = json.dumps({"$ref": f"{server.url}#/x"})
    chart = {**renderers.chart(), "agents/a/chart/values.schema.json": schema}
    repository = renderers.repository("helm:\n  chart: chart\n  namespace: default\n", chart)
    found = {
        PurePosixPath(path): text.encode() if isinstance(text, str) else text
        for path, text in repository.items()
    }
    findings, _ = expanded(found, charts.charts(SourceTree(None, found)))
    assert not server.seen
    assert [finding.message for finding in findings if finding.refused]
