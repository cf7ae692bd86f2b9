"""The settings of what the service serves: the page, the probes and the webhook."""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from typing import Annotated, Literal

import msgspec

from gitops_ds.core.errors import SettingsError
from gitops_ds.core.values import replace
from gitops_ds.service.settings.base import SettingsGroup, describe


class Readiness(StrEnum):
    """When /readyz answers 200: after the first reconciliation, or only while the newest commit of
    each repository is applied.
    """

    STARTED = "started"
    SYNCED = "synced"


class PageSettings(SettingsGroup, frozen=True):
    """The page. `enabled` None, which is the default without the group: on loopback addresses."""

    enabled: Annotated[
        bool | None,
        describe(
            "Whether the page is served. Default: on 127.0.0.1, and if another key of the"
            " page is set."
        ),
    ] = True
    access: Annotated[
        Literal["open", "token", "proxy"] | None,
        describe(
            "How users are authorized. Default: open on 127.0.0.1, the only address that allows it."
        ),
    ] = None
    token_file: Annotated[str, describe("A file with the token, 16 characters or more.")] = ""
    user_header: Annotated[
        Literal["X-Forwarded-User", "X-Auth-Request-Email"],
        describe("The header in which a proxy names the user."),
    ] = "X-Forwarded-User"
    trusted_proxies: Annotated[
        tuple[Annotated[str, describe("A network such as 10.0.0.0/8, or an address.")], ...],
        describe("The networks of trusted proxies."),
    ] = ()
    url: Annotated[
        str,
        msgspec.Meta(pattern=r"^(https?://[^\s]+)?$"),
        describe(
            "The address of the page for people, for links from the pages of other "
            "clusters. Default: none."
        ),
    ] = ""

    def __post_init__(self) -> None:
        for network in self.trusted_proxies:
            try:
                ipaddress.ip_network(network, strict=False)
            except ValueError as error:
                raise SettingsError(f"listen.page.trustedProxies: {error}") from None

    def served_at(self, address: str) -> PageSettings | None:
        """The effective settings at HOST:PORT; None if the page is disabled. Raises SettingsError
        for a page that would be open to every host.
        """
        alone = is_loopback(address.rpartition(":")[0])
        if self.enabled is False or (self.enabled is None and not alone):
            return None
        access = self.access or ("token" if self.token_file or not alone else "open")
        if access == "open" and not alone:
            raise SettingsError(
                f"listen.page.access: {address} would be open to every host: use token or proxy, "
                "or listen on 127.0.0.1"
            )
        if access == "token" and not self.token_file:
            raise SettingsError(
                f"listen.page.tokenFile is required at {address}: set it, or listen on 127.0.0.1"
            )
        if access == "proxy" and not self.trusted_proxies:
            raise SettingsError(
                "listen.page.trustedProxies is required: without it any client could set the user "
                "header"
            )
        return replace(self, enabled=True, access=access)


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


class ListenSettings(SettingsGroup, frozen=True):
    """The addresses of the service and what it serves there; an empty address serves nothing."""

    address: Annotated[
        str,
        msgspec.Meta(pattern="^.*:[0-9]+$"),
        describe("HOST:PORT of /healthz, /readyz, /metrics, the page and webhooks. Default: none."),
    ] = ""
    probes: Annotated[
        str,
        msgspec.Meta(pattern="^.*:[0-9]+$"),
        describe("HOST:PORT of only the probes; `address` serves them as well."),
    ] = ""
    readiness: Annotated[
        Readiness,
        describe(
            "When /readyz answers 200: after the first reconciliation, or only while the newest "
            "commit of each repository is applied."
        ),
    ] = Readiness.STARTED
    page: Annotated[PageSettings, describe("The page: what runs where and why.")] = msgspec.field(
        default_factory=lambda: PageSettings(enabled=None)
    )
    webhook: Annotated[WebhookSettings, describe("Webhooks that trigger a poll.")] = msgspec.field(
        default_factory=WebhookSettings
    )

    @property
    def any_host(self) -> bool:
        """Whether requests may name any host: not for what every user of the machine may read,
        which a site could read through a DNS name for it.
        """
        page = self.page.served_at(self.address)
        is_open = page is None or page.access == "open"
        return not (is_open and is_loopback(self.address.rpartition(":")[0]))


def is_loopback(host: str) -> bool:
    """Whether a listener on this host is reachable only from this machine."""
    name = host.strip("[]")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
