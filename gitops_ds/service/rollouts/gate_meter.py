"""Measures the gates of rollouts: queries of Prometheus, webhooks, and values of the cluster.

No method of the meter raises: without a result a reading has the reason. An address can be a
secret, so messages contain none.
"""

from __future__ import annotations

import asyncio
import base64
import math
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec
import orjson
import yarl

from gitops_ds.core import errors, http_library
from gitops_ds.core.cluster import ClusterReader
from gitops_ds.core.http_library import HttpRequest, NoResponse
from gitops_ds.core.objects import Key
from gitops_ds.core.plain_text import line
from gitops_ds.core.rollouts.rollout_gates import (
    GateRequest,
    GateSample,
    MemoryRequest,
    NeighboursRequest,
    PrometheusRequest,
    Reading,
    WebhookRequest,
)
from gitops_ds.rollouts.inputs.gate_measurement import PodGates
from gitops_ds.service.settings import base
from gitops_ds.service.settings.metrics import (
    GateWebhookSettings,
    MetricsSettings,
    PrometheusSettings,
)

MOST_BYTES = 1 << 20  # of a response
_LONGEST_URL = 2000  # characters; a longer query is sent in the body
NO_SERVER = "no Prometheus server: set metrics.prometheus.url in the settings of the service"
_LONGEST_REASON = 200  # characters
# A node's name, a domain and a port: a longer label names no node, and each of its dots would cost
# a copy of it.
_LONGEST_NODE = 520  # characters
_NAME = ("__name__",)
_OF_SCRAPE = (*_NAME, "instance", "job")  # labels that a new pod changes
_TOKEN, _CA = "metrics.prometheus.tokenFile", "metrics.prometheus.caFile"
_WEBHOOK_TOKEN = "metrics.webhooks.tokenFile"  # noqa: S105


class GateCall(msgspec.Struct, frozen=True):
    """One request: a form (sent as the query of a GET if it is short), or a JSON body. `seconds` is
    the time for all of it.
    """

    url: str
    seconds: float
    form: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    trust: ssl.SSLContext | None = None


async def send(call: GateCall) -> tuple[int, bytes]:
    """The status of the response and its body. Raises NoResponse."""
    headers = {"Accept": "application/json", **call.headers}
    method, url, body = "POST", call.url, call.body
    if call.form:
        words = urlencode(call.form)
        if len(words) < _LONGEST_URL:
            method, url = "GET", f"{call.url}?{words}"
        else:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            body = words.encode()
    request = HttpRequest(
        method,
        yarl.URL(url, encoded=True),
        call.seconds,
        headers,
        body,
        call.trust,
        most_bytes=MOST_BYTES,
    )
    response = await http_library.send(request)
    if 300 <= response.status < 400:
        raise NoResponse(f"HTTP {response.status}: redirects are not followed")
    return response.status, response.body


class Series(NamedTuple):
    """The value of a series, and its labels."""

    value: float
    metric: Mapping[str, Any] = {}

    def node(self, nodes: Collection[str]) -> str:
        """The node that a label names, alone or with a domain and a port; empty without one."""
        for value in self.metric.values():
            name = str(value)
            if len(name) > _LONGEST_NODE:
                continue
            while name and name not in nodes:
                name = name[: max(name.rfind("."), name.rfind(":"), 0)]
            if name:
                return name
        return ""


class _NotConfigured(Exception):
    """The settings of the service do not permit the measurement."""


async def _series(
    server: PrometheusSettings, seconds: float, query: str, at: float | None = None
) -> Mapping[str, Series]:
    """The series of an instant query, by their labels; without a time, for the present time of the
    server. Raises NoResponse, SettingsError and _NotConfigured.

    https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries
    """
    headers = _authorization(server)
    call = GateCall(
        f"{server.url.rstrip('/')}/api/v1/query",
        seconds,
        {"query": query} | ({} if at is None else {"time": f"{at:.3f}"}),
        headers=headers,
        trust=_trust(server.ca_file),
    )
    status, body = await send(call)
    return series_of(status, body)


async def problem(settings: MetricsSettings) -> str:
    """Why queries can't be measured with these settings, by a test query; empty if they can."""
    if settings.prometheus is None:
        return NO_SERVER
    try:
        await _series(settings.prometheus, settings.timeout, "vector(1)")
    except (NoResponse, _NotConfigured, errors.SettingsError) as error:
        return f"Prometheus: {error}"
    return ""


def refused(settings: GateWebhookSettings, url: str) -> str:
    """Why the settings do not permit a webhook; empty if they do."""
    try:
        host = _host(url)
    except NoResponse as error:
        return str(error)
    if host not in settings.allow and host.rpartition(":")[0] not in settings.allow:
        return f"host {host} of the webhook is not in metrics.webhooks.allow of the settings"
    # The scheme is in the policy: who writes it must not decide that the token is readable.
    plain = urlsplit(url).scheme == "http" and not settings.allow_http
    if settings.token_file and plain:
        return "the token is not sent over http: set metrics.webhooks.allowHttp"
    return ""


class HttpGateMeter:
    """Measures with the settings of the service; `cluster_name` is that of the repository."""

    def __init__(
        self,
        settings: MetricsSettings,
        cluster: ClusterReader,
        cluster_name: str,
        clock: Callable[[], float],
    ) -> None:
        self._settings, self._cluster_name, self._clock = settings, cluster_name, clock
        self._pods = PodGates(cluster, clock)

    @property
    def interval(self) -> float:
        """The seconds between two measurements."""
        return self._settings.interval

    async def measure(self, request: GateRequest) -> Reading:
        """One measurement."""
        at, nodes = self._clock(), frozenset(request.subject.nodes)
        try:
            match request:
                case PrometheusRequest():
                    return await self._query(at, nodes, request)
                case WebhookRequest():
                    return await self._ask(at, nodes, request)
                case MemoryRequest() | NeighboursRequest():
                    return await self._pods.measure(request)
        except _NotConfigured as error:
            return Reading(at, nodes, reason=str(error), unavailable=True)
        except errors.SettingsError as error:
            return Reading(at, nodes, reason=str(error), unavailable=True)
        except NoResponse as error:
            return Reading(at, nodes, reason=f"{_NAMES[type(request)]}: {error}")
        except (TypeError, ValueError) as error:
            # A text of the policy that no request can contain, such as half of a surrogate pair.
            return Reading(at, nodes, reason=f"{_NAMES[type(request)]}: {type(error).__name__}")

    def forget(self, key: Key) -> None:
        """Drops the state of a DaemonSet without measured gates."""
        self._pods.forget(key)

    async def _query(self, at: float, nodes: frozenset[str], request: PrometheusRequest) -> Reading:
        """The series now, before the first touch, and of untouched nodes. Raises NoResponse."""
        server = self._settings.prometheus
        if server is None:
            raise _NotConfigured(NO_SERVER)
        seconds = self._settings.timeout
        queries = [_series(server, seconds, request.query)]
        if request.before is not None:
            queries.append(_series(server, seconds, request.query, request.before))
        if request.control:
            queries.append(_series(server, seconds, request.control))
        results = list(await asyncio.gather(*queries))
        now = results.pop(0)
        before = results.pop(0) if request.before is not None else None
        control = results.pop(0) if request.control else {}
        about = frozenset(request.about)
        samples = tuple(_samples(now, before or {}, about))
        reason = "" if samples else "the query has no result"
        known = {sample.labels for sample in samples}
        if gone := sorted(name for name in before or {} if name not in known):
            series = line(gone[0], _LONGEST_REASON // 2)
            reason = f"the series {series} of before is gone: sum by labels that stay, as node"
        values = tuple(sample.value for sample in control.values())
        return Reading(at, nodes, samples, values, reason=reason, about=about)

    async def _ask(self, at: float, nodes: frozenset[str], request: WebhookRequest) -> Reading:
        """The result of a webhook. Raises NoResponse."""
        settings, subject = self._settings.webhooks, request.subject
        if reason := refused(settings, request.url):
            raise _NotConfigured(reason)
        headers = {"Content-Type": "application/json"}
        if settings.token_file:
            headers["Authorization"] = f"Bearer {_secret(_WEBHOOK_TOKEN, settings.token_file)}"
        document = {
            "agent": subject.daemonset.name,
            "namespace": subject.daemonset.namespace,
            "cluster": self._cluster_name,
            "commit": subject.commit,
            "stage": subject.probe.stage,
            "gate": subject.probe.gate,
            "nodes": list(subject.nodes),
        }
        seconds = min(request.timeout, _MOST_SECONDS)
        call = GateCall(request.url, seconds, body=orjson.dumps(document), headers=headers)
        status, body = await send(call)
        passes, reason = verdict_of(status, body)
        return Reading(at, nodes, passes=passes, reason=reason)


_MOST_SECONDS = 60.0  # for a webhook
_NAMES = {
    PrometheusRequest: "Prometheus",
    WebhookRequest: "webhook",
    MemoryRequest: "metrics API",
    NeighboursRequest: "pods",
}


def _samples(
    now: Mapping[str, Series], before: Mapping[str, Series], nodes: Collection[str]
) -> Iterator[GateSample]:
    """The series now with their values before; one of a node that is gone is NaN."""
    for name, series in {**before, **now}.items():
        node, base = series.node(nodes), before.get(name)
        if name in now or node:
            value = series.value if name in now else math.nan
            yield GateSample(value, name, before=base.value if base else None, node=node)


def series_of(status: int, body: bytes) -> Mapping[str, Series]:
    """The series of a response of Prometheus, by their labels. Raises NoResponse for any other
    response.
    """
    document = _object(status, body)
    if document.get("status") != "success":
        message = document.get("error")
        text = line(message, _LONGEST_REASON) if isinstance(message, str) else "no success"
        raise NoResponse(text if status < 500 else f"HTTP {status}: {text}")
    data = document.get("data")
    kind = data.get("resultType") if isinstance(data, dict) else None
    result = data.get("result") if isinstance(data, dict) else None
    if kind == "scalar":
        return {"": Series(_number(result))}
    if kind != "vector" or not isinstance(result, list):
        raise NoResponse(f"the query returns {kind!r}: an instant vector or a scalar is needed")
    if not all(
        isinstance(entry, dict) and isinstance(entry.get("metric"), dict) for entry in result
    ):
        raise NoResponse("the response is not the result of a query")
    alike = Counter(_labels(entry["metric"], _OF_SCRAPE) for entry in result)
    series: dict[str, Series] = {}
    for entry in result:
        name = _labels(entry["metric"], _OF_SCRAPE)
        if alike[name] > 1:
            name = _labels(entry["metric"], _NAME)
        series[name] = Series(_number(entry.get("value")), entry["metric"])
    return series


def verdict_of(status: int, body: bytes) -> tuple[bool, str]:
    """Whether a webhook passes the gate, and its reason. Raises NoResponse for another answer."""
    if status != 200:
        raise NoResponse(f"HTTP {status}")
    document = _object(status, body)
    passes, reason = document.get("pass"), document.get("reason", "")
    if not isinstance(passes, bool) or not isinstance(reason, str):
        raise NoResponse('the response is not {"pass": true|false, "reason": "..."}')
    return passes, line(reason, _LONGEST_REASON)


def _object(status: int, body: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise NoResponse(f"HTTP {status}: the response is not a JSON object")
    return document


def _number(pair: Any) -> float:
    """The value of a pair of time and text; NaN of a native histogram."""
    if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], str):
        try:
            return float(pair[1])
        except ValueError:
            pass
    return math.nan


def _labels(metric: Mapping[Any, Any], hidden: Collection[str]) -> str:
    """The labels of a series as PromQL writes them; they are the key of the series."""
    shown = sorted((str(name), str(value)) for name, value in metric.items() if name not in hidden)
    return line("{" + ", ".join(f'{name}="{value}"' for name, value in shown) + "}", 10**6)


def _authorization(server: PrometheusSettings) -> dict[str, str]:
    """Raises SettingsError, and _NotConfigured for a token that would be readable in the
    network.
    """
    if not server.token_file:
        return {}
    if server.url.startswith("http://") and not server.allow_http:
        raise _NotConfigured("the token is not sent over http: set metrics.prometheus.allowHttp")
    secret = _secret(_TOKEN, server.token_file)
    if server.user:
        pair = base64.b64encode(f"{server.user}:{secret}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {"Authorization": f"Bearer {secret}"}


def _secret(name: str, file: str) -> str:
    """The token in a file. Raises SettingsError."""
    try:
        token = base.read_file(name, file).decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable() or " " in token:
        raise errors.SettingsError(f"{name}: {file} contains no token")
    return token


def _trust(file: str) -> ssl.SSLContext | None:
    """Raises SettingsError for a file without certificates."""
    if not file:
        return None
    data = base.read_file(_CA, file)
    try:
        return ssl.create_default_context(cadata=data.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise errors.SettingsError(f"{_CA}: {file} contains no certificates") from None


def _host(url: str) -> str:
    """HOST:PORT of an address. Raises NoResponse for one that is not an http address."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        raise NoResponse("its address is not an http or https address") from None
    if not parts.hostname or parts.username is not None or not url.isprintable() or " " in url:
        raise NoResponse("its address is not an http or https address")
    return f"{parts.hostname}:{port}"
