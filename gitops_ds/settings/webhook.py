"""The settings of the webhook."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gitops_ds.settings.base import SettingsGroup, describe


class WebhookSettings(SettingsGroup, frozen=True):
    """The endpoint of deliveries and the file of its secrets. Without a file only repositories with
    their own secrets accept deliveries.
    """

    secret_file: Annotated[
        str,
        describe(
            "A file with the secrets that sign deliveries, one per line; without it "
            "webhooks are disabled."
        ),
    ] = ""
    path: Annotated[
        str,
        msgspec.Meta(pattern="^(/[A-Za-z0-9._~-]+)+$"),
        describe("The path; followed by the id of a state, only for that repository."),
    ] = "/hook"
    max_bytes: Annotated[
        int,
        msgspec.Meta(ge=1024, le=25 << 20),
        describe("The largest accepted body, in bytes."),
    ] = 1 << 20


class RepositoryWebhookSettings(SettingsGroup, frozen=True):
    """The secrets of one repository."""

    secret_file: Annotated[
        str, describe("A file with the secrets of this repository, one per line.")
    ] = ""
