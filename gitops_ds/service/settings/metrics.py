"""The settings of measured gates of rollouts: the Prometheus server, and the allowed webhooks."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gitops_ds.core.duration import Duration
from gitops_ds.service.settings.base import NonEmptyText, SettingsGroup, default_duration, describe


class PrometheusSettings(SettingsGroup, frozen=True):
    """The Prometheus server, or another one with its HTTP API."""

    url: Annotated[
        str,
        msgspec.Meta(pattern="^https?://[^/?#@]+(/[^?#]*)?$"),
        describe("Its address; the path of its API, /api/v1, is added. Default: none."),
    ]
    token_file: Annotated[str, describe("A file with a token.")] = ""
    user: Annotated[
        str, describe("The user for basic authentication, with the token as password.")
    ] = ""
    ca_file: Annotated[str, describe("A file with the CA certificates of the server.")] = ""
    allow_http: Annotated[
        bool, describe("Whether the token may be sent over http, in a private network.")
    ] = False


class GateWebhookSettings(SettingsGroup, frozen=True):
    """The webhooks of gates, whose addresses are in policies."""

    allow: Annotated[
        tuple[Annotated[NonEmptyText, describe("A host, or HOST:PORT.")], ...],
        describe("The hosts, HOST or HOST:PORT, to which requests are sent. Default: none."),
    ] = ()
    token_file: Annotated[str, describe("A file with a token that is sent to these hosts.")] = ""
    allow_http: Annotated[
        bool, describe("Whether the token may be sent over http, in a private network.")
    ] = False


class MetricsSettings(SettingsGroup, frozen=True):
    """The measured gates of rollouts."""

    prometheus: Annotated[PrometheusSettings | None, describe("The Prometheus server.")] = None
    webhooks: Annotated[GateWebhookSettings, describe("The webhooks of gates.")] = msgspec.field(
        default_factory=GateWebhookSettings
    )
    interval: Annotated[Duration, describe("The time between two measurements.")] = (
        default_duration("15s")
    )
    timeout: Annotated[Duration, describe("The time for one measurement.")] = default_duration(
        "10s"
    )
