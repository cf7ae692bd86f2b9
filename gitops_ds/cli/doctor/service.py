"""The checks of `doctor` for parts of the service: the election, and the files of webhooks, the
page and notifications.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gitops_ds.cli.doctor import result
from gitops_ds.cli.doctor.result import Line
from gitops_ds.core import errors
from gitops_ds.core.cluster import ClusterReader
from gitops_ds.core.objects import LEASE
from gitops_ds.core.plain_text import counted
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.service.git import forge_discovery
from gitops_ds.service.http import SecretFile
from gitops_ds.service.notifications import sender
from gitops_ds.service.settings.service import Service
from gitops_ds.service.web.page.access import AccessKind, PageToken
from gitops_ds.source.git import address

_SHORTEST = 16  # characters of a secret: a shorter one can be guessed
_NEWS = "docs/notifications.md describes each setting"
_MAKE = "make one with `openssl rand -hex 32`, and give the same to the forge"


def files(service: Service) -> Iterator[Line]:
    """The present secrets of webhooks, the page, receivers of notifications and forges."""
    yield from _webhooks(service)
    yield from _page(service)
    yield from _receivers(service)
    yield from _forges(service)


def _webhooks(service: Service) -> Iterator[Line]:
    named = (
        {"listen.webhook.secretFile": service.listen.webhook.secret_file}
        if service.listen.webhook.secret_file
        else {}
    )
    for number, repository in enumerate(service.repositories):
        if repository.webhook.secret_file:
            place = "repository" if len(service.repositories) == 1 else f"repositories[{number}]"
            named[f"{place}.webhook.secretFile"] = repository.webhook.secret_file
    if named and not service.listen.address:
        yield result.warning(
            "webhook",
            "webhook secrets are configured, but no address to listen on",
            "set listen.address, or use --listen",
        )
    for setting, file in named.items():
        try:
            secrets = SecretFile(setting, file)()
        except errors.SettingsError as error:
            yield result.bad("webhook", str(error), _MAKE)
            continue
        short = sum(len(secret) < _SHORTEST for secret in secrets)
        if short:
            yield result.warning(
                "webhook",
                f"{setting}: {short} of {counted(len(secrets), 'secret')} can be guessed",
                _MAKE,
            )
        else:
            yield result.ok("webhook", f"{setting}: {counted(len(secrets), 'secret')}")


def _page(service: Service) -> Iterator[Line]:
    if not service.listen.address:
        return
    advice = "docs/page.md describes access"
    try:
        served = service.listen.page.served_at(service.listen.address)
        if served is None:
            return
        if served.access == AccessKind.TOKEN.value:
            PageToken(Path(served.token_file)).value()
    except errors.UsageError as error:
        yield result.bad("page", str(error), advice)
        return
    yield result.ok("page", f"served at {service.listen.address}, access by {served.access}")


def _receivers(service: Service) -> Iterator[Line]:
    """No test message is sent, because people would receive it."""
    for receiver in service.notify:
        try:
            url, _ = sender.target(receiver)
        except sender.DeliveryFailed as error:
            yield result.bad("notify", f"{receiver.name}: {error}", _NEWS)
            continue
        if url.startswith("http:"):
            yield result.warning(
                "notify",
                f"{receiver.name}: notifications are sent over http, which others can read and "
                "modify",
                "use https",
            )
        else:
            yield result.ok("notify", f"{receiver.name}: its files can be read")


def _forges(service: Service) -> Iterator[Line]:
    for repository in service.repositories:
        if repository.forge is None:
            continue
        try:
            where = address.parse(repository.url, allow_local=repository.allow_local)
            forge = forge_discovery.access_of(where, repository.forge)
        except errors.UsageError as error:
            yield result.bad("forge", str(error), _NEWS)
        else:
            yield result.ok(
                "forge", f"the status of commits goes to {forge.project} at {forge.url}"
            )


async def election(cluster: ClusterReader, service: Service, now: float) -> Line:
    """The line of the holder of the lease, and whether it renews it; `now` in seconds since 1970.
    Raises ClusterError.
    """
    space, name = service.cluster.namespace, service.election.lease
    try:
        spec = (await cluster.get(LEASE, space, name)).get("spec") or {}
    except errors.NotFound:
        return result.ok("election", f"no Lease {space}/{name} yet: no replica has been leader")
    except errors.Forbidden as error:
        return result.warning(
            "election",
            str(error),
            "a service with an election needs get, create and update on leases",
        )
    holder, renewed = (
        spec.get("holderIdentity"),
        timestamps.seconds(str(spec.get("renewTime") or "")),
    )
    if not holder:
        return result.warning(
            "election", f"the Lease {space}/{name} has no holder", "does the service run?"
        )
    silent = now - renewed if renewed is not None else 0.0
    if silent > 2 * service.election.timing.duration:
        words = (
            f"{holder} holds the Lease {space}/{name}, and did not renew it for "
            f"{timestamps.elapsed(silent)}"
        )
        return result.warning(
            "election", words, "does the service run, and may it update leases? See its log"
        )
    return result.ok("election", f"{holder} leads by the Lease {space}/{name}")
