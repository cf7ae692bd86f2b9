"""The meter against servers that are slow, hostile or wrong, and against a real Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core.http_library import NoResponse
from gitops_ds.core.objects import DAEMONSET, CommitId, Key
from gitops_ds.core.rollouts.rollout_gates import (
    GateRequest,
    Probe,
    ProbeKind,
    PrometheusRequest,
    Reading,
    Subject,
    WebhookRequest,
)
from gitops_ds.core.values import replace
from gitops_ds.service.rollouts import gate_meter
from gitops_ds.service.rollouts.gate_meter import HttpGateMeter, Series
from gitops_ds.service.settings import service as settings_of_service
from gitops_ds.testing import simulator
from tests.http_servers import Answer, Reply, http_server
from tests.rollouts import prometheus

KEY = Key(DAEMONSET.group, DAEMONSET.kind, "agents", "agent")


class Server:
    """An HTTP server that answers with a function; `seen` are its requests."""

    def __init__(self, answer: Answer) -> None:
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.release = threading.Event()
        self.url = ""
        self._answer = answer

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> Reply | None:
        self.seen.append((request.command, request.path, dict(request.headers), body))
        return self._answer(request, body)


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Server]]:
    with contextlib.ExitStack() as servers:

        def started(answer: Answer) -> Server:
            server = Server(answer)
            server.url = servers.enter_context(http_server(server.answer))
            servers.callback(server.release.set)
            return server

        yield started


def reply(status: int, body: bytes, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda *_: Reply(body, status, named)


def subject(kind: ProbeKind) -> Subject:
    return Subject(KEY, "uid", CommitId("c" * 40), Probe("canary", "flow", kind), ("node-1",))


def query(
    text: str = "up", before: float | None = None, control: str = "", about: tuple[str, ...] = ()
) -> PrometheusRequest:
    return PrometheusRequest(subject(ProbeKind.PROMETHEUS), text, before, control, about)


def ask(url: str, timeout: float = 5.0) -> WebhookRequest:
    return WebhookRequest(subject(ProbeKind.WEBHOOK), url, timeout)


def measure(request: GateRequest, **metrics: Any) -> Reading:
    settings = settings_of_service.parse({"metrics": metrics}).metrics

    async def main() -> Reading:
        cluster = simulator.SimulatedCluster()
        return await HttpGateMeter(settings, cluster, "main", lambda: 1000.0).measure(request)

    return asyncio.run(main())


def vector(*series: tuple[dict[str, str], str]) -> bytes:
    result = [{"metric": labels, "value": [1.0, value]} for labels, value in series]
    return json.dumps(
        {"status": "success", "data": {"resultType": "vector", "result": result}}
    ).encode()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, b"", "not a JSON object"),
        (200, b"[]", "not a JSON object"),
        (200, b"\xff\xfe{", "not a JSON object"),
        (200, b"{}", "no success"),
        (200, b"[" * 100_000, "not a JSON object"),
        (503, b"<html>busy</html>", "HTTP 503: the response is not a JSON object"),
        (400, b'{"status":"error","error":"parse error"}', "parse error"),
        (200, b'{"status":"success","data":3}', "the query returns None"),
        (
            200,
            b'{"status":"success","data":{"resultType":"matrix","result":[]}}',
            "the query returns 'matrix'",
        ),
        (
            200,
            b'{"status":"success","data":{"resultType":"vector","result":[1]}}',
            "not the result of a query",
        ),
        (200, vector(), "the query has no result"),
        (200, b"{" + b" " * (2 << 20) + b"}", "larger than 1 MiB"),
    ],
)
def test_wrong_responses_count_as_no_data(
    serve: Callable[[Answer], Server], status: int, body: bytes, reason: str
) -> None:
    server = serve(reply(status, body))
    reading = measure(query(), prometheus={"url": server.url})
    assert reason in reading.reason
    assert not reading.samples
    assert not reading.unavailable
    assert server.host not in reading.reason


def test_values_and_labels_are_read_as_prometheus_writes_them(
    serve: Callable[[Answer], Server],
) -> None:
    body = vector(
        ({"__name__": "up", "node": "a", "instance": "10.0.0.1:80"}, "NaN"),
        ({"node": "b"}, "+Inf"),
        ({"node": "c"}, "1e400"),
        ({"node": "d"}, "many"),
        ({"node": "e", "instance": "1"}, "1"),
        ({"node": "e", "instance": "2"}, "2"),
    )
    reading = measure(query(), prometheus={"url": serve(reply(200, body)).url})
    values = {sample.labels: sample.value for sample in reading.samples}
    assert math.isnan(values['{node="a"}'])
    assert values['{node="b"}'] == values['{node="c"}'] == math.inf
    assert math.isnan(values['{node="d"}'])
    assert values['{instance="1", node="e"}'] == 1
    assert values['{instance="2", node="e"}'] == 2
    body = b'{"status":"success","data":{"resultType":"scalar","result":null}}'
    (series,) = gate_meter.series_of(200, body).values()
    assert math.isnan(series.value)


def test_redirects_compression_and_an_endless_response_count_as_no_data(
    serve: Callable[[Answer], Server],
) -> None:
    other = serve(reply(200, vector(({}, "1"))))
    moved = serve(reply(302, b"", Location=other.url))
    reading = measure(query(), prometheus={"url": moved.url})
    assert reading.reason == "Prometheus: HTTP 302: redirects are not followed"
    assert not other.seen
    packed = serve(reply(200, b"\x1f\x8b\x08\x00", Content_Encoding="gzip"))
    assert "not a JSON" in measure(query(), prometheus={"url": packed.url}).reason

    def endless(request: BaseHTTPRequestHandler, _: bytes) -> None:
        request.send_response(200)
        request.end_headers()
        with contextlib.suppress(OSError):
            while True:
                request.wfile.write(b" " * 65536)

    reading = measure(query(), prometheus={"url": serve(endless).url})
    assert "larger than 1 MiB" in reading.reason


def test_a_slow_server_counts_as_no_data_after_the_timeout(
    serve: Callable[[Answer], Server],
) -> None:
    def slow(*_: object) -> None:
        slow_server.release.wait(60)

    slow_server = serve(slow)
    metrics: dict[str, Any] = {"prometheus": {"url": slow_server.url}, "timeout": "100ms"}
    assert measure(query(), **metrics).reason == "Prometheus: no response in time"
    request = ask(f"{slow_server.url}/x", timeout=0.1)
    allowed = {"allow": [slow_server.host]}
    assert measure(request, webhooks=allowed).reason == "webhook: no response in time"


def test_a_long_query_is_sent_in_the_body_and_a_short_one_in_the_address(
    serve: Callable[[Answer], Server],
) -> None:
    server = serve(reply(200, vector(({}, "1"))))
    metrics = {"url": f"{server.url}/prefix/"}
    measure(query('up{node=~"a&b+c"}', before=5.0), prometheus=metrics)
    measure(query("x" * 100_000), prometheus=metrics)
    methods = [(method, path.partition("?")[0]) for method, path, _, _ in server.seen]
    path = "/prefix/api/v1/query"
    assert sorted(methods) == [("GET", path), ("GET", path), ("POST", path)]
    queries = {one[1].partition("?")[2] for one in server.seen}
    assert queries == {
        "query=up%7Bnode%3D~%22a%26b%2Bc%22%7D",
        "query=up%7Bnode%3D~%22a%26b%2Bc%22%7D&time=5.000",
        "",
    }


def test_a_token_is_sent_to_the_server_only_where_it_is_safe(
    tmp_path: Path, serve: Callable[[Answer], Server]
) -> None:
    server = serve(reply(200, vector(({}, "1"))))
    (tmp_path / "token").write_text("secret-token\n")
    base = {"url": server.url, "tokenFile": str(tmp_path / "token")}
    reading = measure(query(), prometheus=base)
    assert reading.unavailable
    assert "not sent over http" in reading.reason
    assert not server.seen
    measure(query(), prometheus={**base, "allowHttp": True})
    measure(query(), prometheus={**base, "allowHttp": True, "user": "me"})
    sent = [headers["Authorization"] for _, _, headers, _ in server.seen]
    assert sent == ["Bearer secret-token", "Basic bWU6c2VjcmV0LXRva2Vu"]
    missing = measure(query(), prometheus={**base, "tokenFile": str(tmp_path / "none")})
    assert missing.unavailable
    (tmp_path / "token").write_text("two words")
    wrong = measure(query(), prometheus={**base, "allowHttp": True})
    assert wrong.unavailable
    assert "two words" not in wrong.reason


def test_without_a_server_the_reading_is_unavailable() -> None:
    reading = measure(query())
    assert reading.unavailable
    assert "metrics.prometheus.url" in reading.reason


def test_a_webhook_gets_the_rollout_and_decides(serve: Callable[[Answer], Server]) -> None:
    server = serve(reply(200, b'{"pass": false, "reason": "error budget\\nspent"}'))
    reading = measure(ask(f"{server.url}/gate?x=1"), webhooks={"allow": [server.host]})
    assert reading.passes is False
    assert reading.reason == "error budget\\x0aspent"
    method, path, headers, body = server.seen[0]
    assert (method, path, headers["Content-Type"]) == ("POST", "/gate?x=1", "application/json")
    assert json.loads(body) == {
        "agent": "agent",
        "namespace": "agents",
        "cluster": "main",
        "commit": "c" * 40,
        "stage": "canary",
        "gate": "flow",
        "nodes": ["node-1"],
    }


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (204, b""),
        (500, b'{"pass": true}'),
        (201, b'{"pass": true}'),
        (302, b""),
        (200, b'{"pass": "true"}'),
        (200, b'{"pass": 1}'),
        (200, b"{}"),
        (200, b'{"pass": true, "reason": 3}'),
        (200, b"true"),
    ],
)
def test_any_other_response_of_a_webhook_counts_as_no_data(
    serve: Callable[[Answer], Server], status: int, body: bytes
) -> None:
    server = serve(reply(status, body))
    reading = measure(ask(server.url), webhooks={"allow": ["127.0.0.1"]})
    assert reading.passes is None
    assert reading.reason.startswith("webhook: ")


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://127.0.0.1.example.com/",
        "http://127.0.0.1@evil.example.com/",
        "http://127.0.0.1:99999/",
        "file:///etc/passwd",
        "http:///x",
        "http://127.0.0.1 /",
    ],
)
def test_a_policy_reaches_permitted_hosts_only(url: str) -> None:
    reading = measure(ask(url), webhooks={"allow": ["127.0.0.1"]})
    assert reading.passes is None
    assert "metrics.webhooks.allow" in reading.reason or "not an http or https" in reading.reason


def test_the_token_of_webhooks_is_not_readable_in_the_network_by_a_policys_scheme(
    serve: Callable[[Answer], Server], tmp_path: Path
) -> None:
    server = serve(reply(200, b'{"pass": true}'))
    (tmp_path / "token").write_text("secret\n")
    base = {"allow": [server.host], "tokenFile": str(tmp_path / "token")}
    for url in (server.url, server.url.replace("http:", "HTTP:")):
        reading = measure(ask(url), webhooks=base)
        assert "metrics.webhooks.allowHttp" in reading.reason
        assert reading.unavailable
    assert server.seen == []
    measure(ask(server.url), webhooks={**base, "allowHttp": True})
    assert [headers["Authorization"] for _, _, headers, _ in server.seen] == ["Bearer secret"]


def test_a_long_label_names_no_node_and_costs_no_time() -> None:
    """Labels come from any pod that Prometheus scrapes: 100,000 dots took seconds."""

    class Counted(frozenset[str]):
        lookups = 0

        def __contains__(self, name: object) -> bool:
            Counted.lookups += 1
            return super().__contains__(name)

    nodes = Counted({"node-1", "n" * 253})
    longest = f"{'n' * 253}.{'d' * 253}:65535"
    assert Series(1.0, {"x": "." * 100_000, "node": longest}).node(nodes) == "n" * 253
    assert Counted.lookups < 10


def test_texts_that_no_request_can_contain_count_as_no_data() -> None:
    half = "\ud800"
    reading = measure(query(half), prometheus={"url": "http://127.0.0.1:1"})
    assert reading.reason == "Prometheus: UnicodeEncodeError"
    request = replace(ask("http://127.0.0.1:1"), subject=replace(ask("").subject, nodes=(half,)))
    reading = measure(request, webhooks={"allow": ["127.0.0.1"]})
    assert reading.reason.startswith("webhook: ")


def test_the_address_of_an_error_is_not_in_its_message() -> None:
    with pytest.raises(NoResponse) as raised:
        asyncio.run(gate_meter.send(gate_meter.GateCall("http://secret.invalid/token", 5.0)))
    assert "secret" not in str(raised.value)


def test_a_missing_series_counts_as_no_data(serve: Callable[[Answer], Server]) -> None:
    def by_time(request: BaseHTTPRequestHandler, _: bytes) -> Reply:
        name = "old" if "time=" in request.path else "new"
        return Reply(vector(({"pod": name}, "1")))

    reading = measure(query(before=1.0), prometheus={"url": serve(by_time).url})
    assert 'series {pod="old"} of before is gone' in reading.reason


def test_each_series_belongs_to_the_node_that_a_label_names(
    serve: Callable[[Answer], Server],
) -> None:
    series = vector(
        ({"node": "a"}, "1"),
        ({"instance": "a.b:9100"}, "2"),
        ({"host": "b.example.com:1"}, "3"),
        ({"pod": "agent-a"}, "4"),
        ({"node": "d"}, "NaN"),
    )
    nodes = ("a", "a.b", "b", "c", "d")
    reading = measure(query(about=nodes), prometheus={"url": serve(reply(200, series)).url})
    assert [sample.node for sample in reading.samples] == ["a", "a.b", "b", "", "d"]
    assert reading.about == frozenset(nodes)


def test_a_node_whose_series_of_before_is_gone_has_no_value(
    serve: Callable[[Answer], Server],
) -> None:
    def by_time(request: BaseHTTPRequestHandler, _: bytes) -> Reply:
        node_b = [({"node": "b"}, "1")] if "time=" in request.path else []
        return Reply(vector(({"node": "a"}, "1"), *node_b))

    request = query(before=1.0, about=("a", "b"))
    reading = measure(request, prometheus={"url": serve(by_time).url})
    assert not reading.reason
    assert [(sample.node, math.isnan(sample.value)) for sample in reading.samples] == [
        ("a", False),
        ("b", True),
    ]


@pytest.mark.metrics
def test_a_real_prometheus(tmp_path: Path) -> None:
    with prometheus.scraped(tmp_path) as (server, exporter):
        exporter.text = lambda: 'errors{node="a.b"} 3\nerrors{node="c"} 5\n'
        server.until_scraped("errors")
        metrics = {"url": server.url}
        reading = measure(query('errors{node=~"a[.]b"}'), prometheus=metrics)
        assert [(sample.labels, sample.value) for sample in reading.samples] == [
            ('{node="a.b"}', 3.0)
        ]
        reading = measure(query("sum(errors) / 0"), prometheus=metrics)
        assert reading.samples[0].value == math.inf
        assert "parse error" in measure(query("sum("), prometheus=metrics).reason
        assert "'matrix'" in measure(query("errors[1m]"), prometheus=metrics).reason
        assert measure(query("scalar(sum(errors))"), prometheus=metrics).samples[0].value == 8
        assert measure(query("none"), prometheus=metrics).reason == "the query has no result"
        compared = measure(
            query("sum(errors)", before=1.0, control="sum(errors)"), prometheus=metrics
        )
        assert compared.control == (8.0,)
        assert compared.samples[0].before is None
        long = measure(query("sum(errors) # " + "x" * 5000), prometheus=metrics)
        assert long.samples[0].value == 8
