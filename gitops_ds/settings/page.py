"""The settings of the page: whether it is served, and to whom."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gitops_ds.errors import SettingsError


class Readiness(StrEnum):
    """When /readyz answers 200: after the first pass, or only while the newest commit of each
    repository is applied.
    """

    STARTED = "started"
    SYNCED = "synced"


@dataclass(frozen=True, slots=True)
class PageSettings:
    """`enabled` None: where only this machine can look. `access` is open, token or proxy; empty:
    open where only this machine can.

    `token_file` holds the token; with `proxy` one of the networks `trusted_proxies` names the
    person in `user_header`.
    """

    enabled: bool | None = None
    access: str = ""
    token_file: str = ""
    user_header: str = "X-Forwarded-User"
    trusted_proxies: tuple[str, ...] = ()

    def served_at(self, address: str) -> PageSettings | None:
        """What holds at HOST:PORT; None where no page is served. Raises SettingsError for a page
        that would be open to all.
        """
        alone = is_loopback(address.rpartition(":")[0])
        if self.enabled is False or (self.enabled is None and not alone):
            return None
        access = self.access or ("token" if self.token_file or not alone else "open")
        if access == "open" and not alone:
            raise SettingsError(
                f"listen.page.access: open to everybody who reaches {address}: use token or "
                "proxy, or listen on 127.0.0.1"
            )
        if access == "token" and not self.token_file:
            raise SettingsError(
                f"listen.page.tokenFile is missing: whoever reaches {address} could look; or "
                "listen on 127.0.0.1"
            )
        if access == "proxy" and not self.trusted_proxies:
            raise SettingsError(
                "listen.page.trustedProxies is missing: without it anybody could say who they are"
            )
        return PageSettings(True, access, self.token_file, self.user_header, self.trusted_proxies)


def is_loopback(host: str) -> bool:
    """Whether who listens there hears this machine only."""
    name = host.strip("[]")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def page(told: Mapping[str, Any]) -> PageSettings:
    """The settings `listen.page` of a group that its schema found right. Naming the group asks for
    the page.
    """
    for one in told.get("trustedProxies") or ():
        try:
            ipaddress.ip_network(one, strict=False)
        except ValueError as error:
            raise SettingsError(f"listen.page.trustedProxies: {error}") from None
    return PageSettings(
        bool(told.get("enabled", True)),
        told.get("access") or "",
        told.get("tokenFile") or "",
        told.get("userHeader") or "X-Forwarded-User",
        tuple(told.get("trustedProxies") or ()),
    )
