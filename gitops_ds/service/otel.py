"""OpenTelemetry traces: a span for each reconciliation, with children for Git, rendering, checks,
plan and apply.

Traces are off, and the SDK is not imported, unless the environment names a collector. The SDK
reads its standard variables:
https://opentelemetry.io/docs/specs/otel/protocol/exporter/ and
.../configuration/sdk-environment-variables/
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from gitops_ds import __version__
from gitops_ds.core import spans

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_PATIENCE = 1.0  # seconds at the end for unsent spans


def enabled(environment: Mapping[str, str]) -> bool:
    """Whether the environment names a collector and does not disable traces."""
    named = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environment.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    off = (
        environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or environment.get("OTEL_TRACES_EXPORTER") == "none"
    )
    return bool(named) and not off


@contextlib.contextmanager
def exported(say: Callable[[str], None]) -> Iterator[None]:
    """Sends the spans of all tasks that start in the context, if enabled; `say` gets the reason if
    that is not possible.
    """
    if not enabled(os.environ):
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        say(
            "no traces: OTEL_EXPORTER_OTLP_ENDPOINT is set, but the extra is not installed: "
            "pip install 'gitops-ds[otel]'"
        )
        yield
        return
    with exported_to(OTLPSpanExporter()):
        yield


@contextlib.contextmanager
def exported_to(exporter: SpanExporter) -> Iterator[None]:
    """As `exported`, to that exporter, in batches from a separate thread."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    about = {"service.version": __version__}
    if "OTEL_SERVICE_NAME" not in os.environ and "service.name=" not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        about["service.name"] = "gitops-ds"
    provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    before, recorder = (
        spans.listener.set(_listener(provider)),
        spans.recorder.set(_recorder(provider)),
    )
    try:
        yield
    finally:
        spans.listener.reset(before)
        spans.recorder.reset(recorder)
        # An unreachable collector must not delay the stop.
        ending = threading.Thread(target=provider.shutdown, daemon=True)
        ending.start()
        ending.join(_PATIENCE)


def _recorder(provider: TracerProvider) -> Callable[[spans.EndedSpan], None]:
    tracer = provider.get_tracer("gitops-ds", __version__)

    def record(stretch: spans.EndedSpan) -> None:
        tracer.start_span(stretch.name, start_time=stretch.began).end(stretch.ended)

    return record


def _listener(provider: TracerProvider) -> spans.Begin:
    from opentelemetry.trace import Status, StatusCode

    tracer = provider.get_tracer("gitops-ds", __version__)

    @contextlib.contextmanager
    def begin(name: str, values: Mapping[str, str]) -> Iterator[None]:
        attributes = {f"gitops_ds.{key}": value for key, value in values.items()}
        # Only the class of an error: its message may contain a secret.
        with tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as current:
            try:
                yield
            except Exception as error:
                current.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise

    return begin
