"""The settings of notifications: their receivers, and the forge for the status of commits."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gitops_ds.forges.contract import ForgeKind
from gitops_ds.model.events.definition import Topic
from gitops_ds.settings.base import NonEmptyText, Positive, SettingsGroup, describe
from gitops_ds.telemetry.notifications import MessageFormat


class ReceiverSettings(SettingsGroup, frozen=True):
    """A receiver of notifications; address and secret are in files."""

    name: Annotated[str, describe("The name of the receiver.")]
    url_file: Annotated[str, describe("A file with the address.")]
    format: Annotated[MessageFormat, describe("The format of the body.")] = MessageFormat.JSON
    topics: Annotated[
        frozenset[Annotated[Topic, describe("A topic.")]],
        describe("The topics that are sent. Default: all."),
    ] = msgspec.field(name="on", default_factory=lambda: frozenset(Topic))
    secret_file: Annotated[str, describe("A file with the secret that signs the body.")] = ""
    per_minute: Annotated[Positive, describe("The maximum number of messages in a minute.")] = (
        msgspec.field(name="maxPerMinute", default=10)
    )


class ForgeSettings(SettingsGroup, frozen=True):
    """The forge of a repository; unset keys follow from the repository's address."""

    kind: Annotated[ForgeKind, describe("Its kind.")]
    token_file: Annotated[
        NonEmptyText, describe("A file with a token that may set the status of commits.")
    ]
    url: Annotated[
        str, describe("Its address, or that of its API. Default: that of the repository.")
    ] = ""
    project: Annotated[
        str, describe("OWNER/NAME of the repository there. Default: the path of its address.")
    ] = ""
    allow_http: Annotated[
        bool, describe("Whether the token may be sent over http, in a private network.")
    ] = False
