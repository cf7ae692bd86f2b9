"""The HTTP endpoints of the service: probes, metrics, webhooks and the page, as the settings
enable them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gitops_ds.core.errors import SettingsError
from gitops_ds.core.events.base import Emit
from gitops_ds.core.events.bus import EventBus
from gitops_ds.core.sources.source_status import EFFECTS
from gitops_ds.kube.client.leader_lease import Election
from gitops_ds.kube.client.transport import RequestCounter
from gitops_ds.service.runnable import DeployerPart, Runnable, ServiceParts
from gitops_ds.service.settings.listen import Readiness
from gitops_ds.service.settings.service import Service

if TYPE_CHECKING:
    from gitops_ds.service.git.git_deployer import GitDeployer
    from gitops_ds.service.web.server import RouteDef, Routes


STUCK = 300.0  # seconds without any progress


class Probes(msgspec.Struct, frozen=True):
    """The probes of the kubelet. A blocked event loop answers none of them."""

    parts: Sequence[Runnable]
    election: Election | None
    readiness: Readiness = Readiness.STARTED

    def unready(self) -> str:
        """Why the service is not ready; empty when it is. A standby replica is ready when its
        caches are filled.
        """
        if started := "; ".join(part.unready for part in self.parts if part.unready):
            return started
        if self.readiness is Readiness.STARTED:
            return ""
        statuses = [
            status
            for part in self.parts
            if isinstance(part, DeployerPart) and (status := part.status) is not None
        ]
        return "; ".join(
            f"{of_repository.repository}: {of_repository.message}"
            for of_repository in statuses
            if not EFFECTS[of_repository.condition].ready
        )

    def stuck(self) -> str:
        """Why a restart is needed; empty if it is not."""
        idle = max((part.seconds_without_progress for part in self.parts), default=0.0)
        if idle > STUCK:
            return f"reconciliation has made no progress for {idle:.0f} s"
        if self.election is not None and self.election.idle_for > STUCK:
            return f"the lease has not been checked for {self.election.idle_for:.0f} s"
        return ""


@contextlib.asynccontextmanager
async def served(
    service: Service,
    events: EventBus,
    parts: ServiceParts,
    election: Election | None,
    counter: RequestCounter,
) -> AsyncIterator[None]:
    """Serves at the addresses of the settings meanwhile. The address of the probes has a separate
    connection limit.
    """
    if not (service.listen.address or service.listen.probes):
        yield
        return
    # Web pages and metrics take 3 MiB, which a service without an address does not need.
    from gitops_ds.notify import metrics
    from gitops_ds.service.web import server

    controller, deployers = parts.controller, parts.deployers
    probes = Probes(parts.runnables, election, service.listen.readiness)
    source = metrics.MetricsSource(
        agents=parts.status.statuses,
        requests=lambda: counter.answered,
        waiting=lambda: controller.waiting,
        ages=lambda: controller.observer.ages,
        waiting_nodes=controller.startup_taints.counts,
        sources=lambda: [
            status for deployer in deployers if (status := deployer.status) is not None
        ],
    )
    counters = metrics.Metrics(source)
    async with contextlib.AsyncExitStack() as stack:
        shown = await stack.enter_async_context(_page(service, events, parts))
        events.subscribers.append(counters.handle)
        probed = server.probes(probes.stuck, probes.unready)
        if service.listen.address:
            runner = await server.serve(
                service.listen.address,
                probed,
                server.exposition(counters),
                shown,
                signed=_webhook_routes(service, events.publish, deployers),
                any_host=service.listen.any_host,
            )
            stack.push_async_callback(runner.cleanup)
        if service.listen.probes:
            alone = await server.serve(
                service.listen.probes,
                probed,
                any_host=True,  # nothing but a text
                door=server.probe_door(),
                option="--listen-probes",
            )
            stack.push_async_callback(alone.cleanup)
        yield


@contextlib.asynccontextmanager
async def _page(service: Service, events: EventBus, parts: ServiceParts) -> AsyncIterator[Routes]:
    """The routes of the page; none if it is disabled."""
    settings = service.listen.page.served_at(service.listen.address)
    if settings is None:
        yield ()
        return
    from gitops_ds.service import page_view

    def followed() -> Iterable[page_view.RepositoryView]:
        for deployer in parts.deployers:
            if deployer.loop is not None:
                facts = deployer.loop.bundle.cluster if deployer.loop.bundle is not None else None
                yield page_view.RepositoryView(
                    deployer.loop.manifests,
                    getattr(deployer, "repository", None),
                    tuple(facts.pools) if facts is not None else (),
                    deployer.status,
                    deployer.clusters,
                    facts.name if facts is not None else "",
                )
            elif deployer.status is not None:
                yield page_view.RepositoryView(status=deployer.status)

    name = service.cluster.name
    taints = parts.controller.startup_taints
    shown = page_view.Shown(name, parts.status.tracker, followed, waits=lambda: taints.waits)
    events.subscribers.append(shown.handle)
    async with page_view.beside(settings, shown) as routes:
        yield routes


def _webhook_routes(
    service: Service, emit: Emit, parts: Sequence[DeployerPart]
) -> Sequence[RouteDef]:
    """The webhook's routes; none without a secret. Raises SettingsError for a secret that cannot be
    read.
    """
    if not service.repositories:
        return ()
    from gitops_ds.service.git.git_deployer import GitDeployer
    from gitops_ds.service.web import webhooks

    settings = service.listen.webhook
    deployers = tuple(part for part in parts if isinstance(part, GitDeployer))
    common = (
        SecretFile("listen.webhook.secretFile", settings.secret_file)
        if settings.secret_file
        else None
    )
    own = {
        deployer: SecretFile("repository.webhook.secretFile", deployer.settings.webhook.secret_file)
        for deployer in deployers
        if deployer.settings.webhook.secret_file
    }
    if common is None and not own:
        return ()

    def secrets_of(deployer: GitDeployer) -> Callable[[], Sequence[bytes]]:
        files = [file for file in (own.get(deployer), common) if file is not None]
        return lambda: [secret for file in files for secret in file()]

    secrets = {deployer: secrets_of(deployer) for deployer in deployers}

    def targets() -> list[webhooks.WebhookTarget]:
        return [
            webhooks.WebhookTarget(
                deployer.id,
                deployer.addresses,
                deployer.settings.branch,
                secrets[deployer],
                deployer.wake,
            )
            for deployer in deployers
            if deployer.loop is not None
        ]

    hooks = webhooks.Hooks(targets, emit, time.time, max_bytes=settings.max_bytes)
    return hooks.routes(settings.path)


class SecretFile:
    """The lines of a file, read again when it changes; none while it cannot be read."""

    def __init__(self, setting: str, file: str) -> None:
        """`setting` is the file's key. Raises SettingsError for a file without a secret."""
        self._file = Path(file)
        self._seen: tuple[int, int, int] | None
        try:
            self._seen, self._lines = self._mark(), self._read()
        except OSError as error:
            raise SettingsError(f"{setting}: {file}: {error.strerror}") from None
        if not self._lines:
            raise SettingsError(f"{setting}: {file}: empty; a line with a secret is expected")

    def __call__(self) -> Sequence[bytes]:
        """The current secrets."""
        try:
            if (mark := self._mark()) != self._seen:
                self._lines, self._seen = self._read(), mark
        except OSError:
            self._lines, self._seen = (), None
        return self._lines

    def _mark(self) -> tuple[int, int, int]:
        stat = self._file.stat()
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _read(self) -> tuple[bytes, ...]:
        return tuple(line.strip() for line in self._file.read_bytes().splitlines() if line.strip())
