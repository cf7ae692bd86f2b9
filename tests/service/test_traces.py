"""With a collector in the environment each pass is a trace with its parts, no secret in it; without
one nothing is imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gitops_ds.core import errors, spans
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.service import otel
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time
from tests import controlplane, gitservers
from tests.deploy.test_loop import AGENT, History, loop_on
from tests.http_servers import Reply, http_server
from tests.plan.world import daemonset
from tests.service.test_service import running, until


def traced(work: Any) -> Sequence[ReadableSpan]:
    """The spans of what the work does."""
    exporter = InMemorySpanExporter()
    with otel.exported_to(exporter):
        virtual_time.run(work())
    return exporter.get_finished_spans()


def tree(spans_of_work: Sequence[ReadableSpan]) -> list[tuple[str, list[str]]]:
    """Each span without a parent, with its children in the order in which they began."""
    below = {span.context.span_id: list[ReadableSpan]() for span in spans_of_work if span.context}
    for span in spans_of_work:
        if span.parent is not None:
            below[span.parent.span_id].append(span)
    roots = sorted(
        (span for span in spans_of_work if span.parent is None),
        key=lambda span: span.start_time or 0,
    )
    return [
        (
            root.name,
            [c.name for c in sorted(below[root.context.span_id], key=lambda c: c.start_time or 0)],
        )
        for root in roots
        if root.context
    ]


async def two_passes(history: History) -> None:
    async with simulator.SimulatedCluster() as cluster:
        loop = loop_on(cluster, cluster.client(), history, [], ApplyOptions(patience=0.0))
        going = asyncio.create_task(loop.run())
        await asyncio.sleep(60)
        loop.request()
        await asyncio.sleep(5)
        loop.stop()
        await going


def test_a_pass_is_a_span_with_its_parts_below_it() -> None:
    async def work() -> None:
        history = History()
        history.push(AGENT.format(tag="1"))
        await two_passes(history)

    first, *_, last = tree(traced(work))
    assert first == ("pass", ["git", "git", "render", "check", "plan", "apply"])
    assert last == ("pass", ["git"])


def test_the_kind_of_an_error_is_traced_and_not_its_message() -> None:
    async def work() -> None:
        class Secretive(History):
            async def tip(self) -> Any:
                raise errors.SourceDenied("https://bot:hunter2@git.example.com refused")

        await two_passes(Secretive())

    spans_of_work = traced(work)
    assert {(span.name, span.status.description) for span in spans_of_work} == {
        ("pass", "SourceDenied"),
        ("git", "SourceDenied"),
    }
    assert "hunter2" not in "".join(span.to_json() for span in spans_of_work)


def test_no_listener_exists_unless_one_is_configured() -> None:
    assert spans.listener.get() is None
    with spans.span("pass", owner="x"), spans.span("git"):
        pass
    with otel.exported_to(InMemorySpanExporter()):
        assert spans.listener.get() is not None
    assert spans.listener.get() is None


@pytest.mark.parametrize(
    ("environment", "on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "True"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_the_environment_enables_traces(environment: dict[str, str], on: bool) -> None:
    assert otel.enabled(environment) is on


def test_without_a_collector_opentelemetry_is_not_imported() -> None:
    words = (
        "import sys, gitops_ds.service.main; sys.exit(any(name.startswith('opentelemetry') for "
        "name in sys.modules))"
    )
    assert (
        subprocess.run(
            (sys.executable, "-c", words), env=gitservers.GIT_ENVIRONMENT, check=False
        ).returncode
        == 0
    )


@contextlib.contextmanager
def collecting() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """The URL of a collector, and what an OTLP exporter posted to it, by path."""
    taken: list[tuple[str, bytes]] = []

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> Reply:
        taken.append((request.path, body))
        return Reply()

    with http_server(answer) as url:
        yield url, taken


@pytest.mark.controlplane
def test_the_installed_service_sends_its_passes_to_a_collector(
    tmp_path: Path, control_plane: controlplane.ControlPlane
) -> None:
    control_plane.kubectl("create", "namespace", "traced")
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit(
        {"agent.json": json.dumps(daemonset("agent", "registry.example.com/agent:1", "traced"))}
    )
    with collecting() as (url, taken):
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        with running(
            tmp_path, control_plane, "-C", str(upstream.path), "--interval", "1s", **variables
        ) as (_, log):
            until(
                lambda: any("apply" in request_names for request_names in map(names, taken)),
                log.read_text,
            )
    assert {path for path, _ in taken} == {"/v1/traces"}
    everything = {name for request_names in map(names, taken) for name in request_names}
    assert everything == {"pass", "git", "render", "check", "plan", "apply"}
    request = ExportTraceServiceRequest.FromString(taken[0][1])
    about = {
        pair.key: pair.value.string_value for pair in request.resource_spans[0].resource.attributes
    }
    assert about["service.name"] == "gitops-ds"
    control_plane.kubectl("delete", "namespace", "traced", "--wait=false")


def names(export: tuple[str, bytes]) -> set[str]:
    request = ExportTraceServiceRequest.FromString(export[1])
    return {
        span.name
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    }
