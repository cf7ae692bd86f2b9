"""Charts in an HTTP chart repository and in an OCI registry, both served on this machine, fetched
by the real helm.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from gitops_ds.core.sources.repository_limits import AllowedRenderers
from tests import renderers
from tests.http_servers import Reply, http_server
from tests.renderers import test_helm as local

pytestmark = pytest.mark.renderers

ARCHIVE = renderers.packed(renderers.CHART)
FETCHING = AllowedRenderers(helm=True, network=True)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class Server:
    """Answers GET and HEAD with what is in `pages` (content type and body), and records the
    requests.
    """

    url: str = ""
    pages: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)


@contextmanager
def serving(pages: dict[str, tuple[str, bytes]]) -> Iterator[Server]:
    here = Server(pages=pages)

    def answer(request: BaseHTTPRequestHandler, _: bytes) -> Reply:
        here.requests.append(request.path)
        kind, body = here.pages.get(request.path, ("text/plain", b""))
        headers = {"Content-Type": kind, "Docker-Content-Digest": digest(body)}
        return Reply(body, 200 if request.path in here.pages else 404, headers)

    with http_server(answer) as url:
        here.url = url.removeprefix("http://")
        yield here


def http_pages(archive: bytes = ARCHIVE) -> dict[str, tuple[str, bytes]]:
    entry = {
        "apiVersion": "v2",
        "name": "agent",
        "version": "1.2.3",
        "urls": ["agent-1.2.3.tgz"],
        "digest": digest(ARCHIVE)[7:],
    }
    index = json.dumps(
        {"apiVersion": "v1", "entries": {"agent": [entry]}, "generated": "2026-01-01T00:00:00Z"}
    ).encode()
    return {
        "/charts/index.yaml": ("text/yaml", index),
        "/charts/agent-1.2.3.tgz": ("application/gzip", archive),
    }


def oci_pages() -> tuple[dict[str, tuple[str, bytes]], str]:
    """The pages of a registry as the OCI distribution specification has them, and the manifest's
    digest.
    """
    config = b'{"name": "agent", "version": "1.2.3", "apiVersion": "v2"}'
    layers = [
        {
            "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
            "digest": digest(ARCHIVE),
            "size": len(ARCHIVE),
        }
    ]
    own = {
        "mediaType": "application/vnd.cncf.helm.config.v1+json",
        "digest": digest(config),
        "size": len(config),
    }
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = json.dumps(
        {"schemaVersion": 2, "mediaType": kind, "config": own, "layers": layers}
    ).encode()
    base = "/v2/charts/agent"
    pages = {
        f"{base}/blobs/{digest(data)}": ("application/octet-stream", data)
        for data in (config, ARCHIVE)
    }
    pages |= {f"{base}/manifests/{name}": (kind, manifest) for name in ("1.2.3", digest(manifest))}
    return {**pages, "/v2/": ("application/json", b"{}")}, digest(manifest)


def source(chart: str, **more: str) -> dict[str, str | bytes]:
    keys = "".join(
        f"  {name}: {value}\n"
        for name, value in {"chart": chart, "version": "1.2.3", **more}.items()
    )
    return renderers.repository(f"helm:\n{keys}", {})


def test_a_chart_of_an_http_repository_is_fetched_and_is_that_of_a_directory() -> None:
    with serving(http_pages()) as server:
        files = source("agent", repo=f"http://{server.url}/charts", digest=digest(ARCHIVE))
        made, _ = local.rendered(files, local.means(allowed=FETCHING))
    assert (
        local.only(made).body
        == local.only(local.rendered(renderers.repository(local.LOCAL))[0]).body
    )


@pytest.mark.parametrize("pinned", [True, False])
def test_a_chart_of_a_registry_is_fetched_and_is_that_of_a_directory(pinned: bool) -> None:
    pages, manifest = oci_pages()
    with serving(pages) as server:
        files = source(
            f"oci://{server.url}/charts/agent", **({"digest": manifest} if pinned else {})
        )
        made, _ = local.rendered(files, local.means(allowed=FETCHING))
    assert (
        local.only(made).body
        == local.only(local.rendered(renderers.repository(local.LOCAL))[0]).body
    )


def test_a_digest_other_than_the_configured_one_is_refused_at_its_line() -> None:
    pages, _ = oci_pages()
    with serving(pages) as server:
        for files in (
            source(f"oci://{server.url}/charts/agent", digest=digest(b"another")),
            source("agent", repo=f"oci://{server.url}/charts", digest=digest(b"another")),
        ):
            place, message = local.refusal(files, local.means(allowed=FETCHING))
            assert place.startswith("agents/a/source.yaml:")
            assert "not the required one" in message


def test_an_archive_that_the_index_does_not_promise_is_refused() -> None:
    with serving(
        http_pages(renderers.packed({**renderers.CHART, "templates/x.yaml": "a: b"}))
    ) as server:
        files = source("agent", repo=f"http://{server.url}/charts", digest=digest(ARCHIVE))
        assert "digest" in local.refusal(files, local.means(allowed=FETCHING))[1]


def test_no_server_is_contacted_unless_the_network_is_allowed() -> None:
    with serving(http_pages()) as server:
        place, message = local.refusal(source("agent", repo=f"http://{server.url}/charts"))
        assert (place, server.requests) == ("agents/a/source.yaml:2:10", [])
    assert "--allow helm,network" in message


def test_a_missing_chart_is_reported_at_the_source() -> None:
    with serving({}) as server:
        place, message = local.refusal(
            source(f"oci://{server.url}/charts/agent"), local.means(allowed=FETCHING)
        )
    assert place == "agents/a/source.yaml:2:10"
    assert "could not be fetched" in message


def test_a_fetched_chart_is_not_fetched_again(tmp_path: Path) -> None:
    with serving(http_pages()) as server:
        files = source("agent", repo=f"http://{server.url}/charts")
        first, _ = local.rendered(files, local.means(allowed=FETCHING, cache=tmp_path / "kept"))
    again, _ = local.rendered(files, local.means(cache=tmp_path / "kept"))
    assert local.only(again).body == local.only(first).body
    assert server.requests.count("/charts/agent-1.2.3.tgz") == 1
