"""What the service shows over HTTP: probes, metrics, webhooks and the page, each only where the
settings ask for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gitops_ds.client.leader_lease import Election
from gitops_ds.client.request_counter import RequestCounter
from gitops_ds.controller.controller import Controller
from gitops_ds.fleet import reporter
from gitops_ds.model.events.base import Emit, Event
from gitops_ds.model.source_status import EFFECTS
from gitops_ds.service.runnable import DeployerPart, Runnable
from gitops_ds.settings.page import Readiness
from gitops_ds.settings.service import Service

if TYPE_CHECKING:
    from aiohttp import web

    from gitops_ds.service.git_deployer import GitDeployer
    from gitops_ds.service.template_deployer import Templating
    from gitops_ds.web.server import Routes

STUCK = 300.0  # seconds without any progress


@dataclass(slots=True)
class EventBus:
    """Whoever hears of every fact: the log first, then what the settings ask for."""

    hearing: list[Emit]

    def tell(self, told: Event) -> None:
        """Passes it on."""
        for hear in self.hearing:
            hear(told)


@dataclass(frozen=True, slots=True)
class Probes:
    """What the kubelet asks. An event loop that hangs does not answer at all."""

    parts: Sequence[Runnable]
    election: Election | None
    readiness: Readiness = Readiness.STARTED

    def unready(self) -> str:
        """Why nobody should be sent here yet; a replica that stands by is ready when everything is
        at hand.
        """
        if started := "; ".join(part.unready for part in self.parts if part.unready):
            return started
        if self.readiness is Readiness.STARTED:
            return ""
        known = [
            status
            for part in self.parts
            if isinstance(part, DeployerPart) and (status := part.status) is not None
        ]
        return "; ".join(
            f"{one.repository}: {one.message}" for one in known if not EFFECTS[one.condition].ready
        )

    def stuck(self) -> str:
        """Why a new start is needed."""
        stands = max((part.standing_for for part in self.parts), default=0.0)
        if stands > STUCK:
            return f"a pass or a turn stands still for {stands:.0f} s"
        if self.election is not None and self.election.idle_for > STUCK:
            return f"the lease was not looked at for {self.election.idle_for:.0f} s"
        return ""


@dataclass(frozen=True, slots=True)
class Scraped:
    """What Prometheus is told of, beside the facts."""

    observed: reporter.Observing
    controller: Controller
    tally: RequestCounter
    deployers: Sequence[DeployerPart] = ()


@contextlib.asynccontextmanager
async def served(
    service: Service, hearers: EventBus, probes: Probes, asked: Scraped, shown: Routes
) -> AsyncIterator[None]:
    """Answers at the addresses of the settings meanwhile; connections to the probes' own count by
    themselves.
    """
    # Web pages and metrics take 3 MiB that nobody asks for without an address.
    from gitops_ds.telemetry import metrics
    from gitops_ds.web import server

    inside = metrics.MetricsSource(
        agents=asked.observed.lines,
        requests=lambda: asked.tally.answered,
        waiting=lambda: asked.controller.waiting,
        ages=lambda: asked.controller.ages,
        sources=lambda: [status for one in asked.deployers if (status := one.status) is not None],
    )
    counters = metrics.Metrics(inside)
    hearers.hearing.append(counters.hear)
    faces = [
        server.probes(probes.stuck, probes.unready),
        server.exposition(counters),
        _hooks(service, hearers.tell, probes.parts),
        shown,
    ]
    async with contextlib.AsyncExitStack() as stack:
        if service.listen.address:
            runner = await server.serve(service.listen.address, *faces)
            stack.push_async_callback(runner.cleanup)
        if service.listen.probes:
            alone = await server.serve(
                service.listen.probes, faces[0], door=server.probe_door(), option="--listen-probes"
            )
            stack.push_async_callback(alone.cleanup)
        yield


@contextlib.asynccontextmanager
async def page(
    service: Service,
    hearers: EventBus,
    observed: reporter.Observing,
    deployers: Sequence[GitDeployer | Templating],
) -> AsyncIterator[Routes]:
    """The page's routes; none where none is served, which costs nothing."""
    settings = service.listen.page.served_at(service.listen.address)
    if settings is None:
        yield ()
        return
    from gitops_ds.service import page_view

    def followed() -> Iterable[page_view.RepositoryView]:
        for one in deployers:
            if one.loop is not None:
                yield page_view.RepositoryView(
                    one.loop.manifests, getattr(one, "repository", None), one.loop.pools, one.status
                )
            elif one.status is not None:
                yield page_view.RepositoryView(status=one.status)

    shown = page_view.Shown(service.cluster.name or "cluster", observed.standings, followed)
    hearers.hearing.append(shown.hear)
    async with page_view.beside(settings, shown) as routes:
        yield routes


def _hooks(
    service: Service, tell: Emit, parts: Sequence[Runnable]
) -> Sequence[web.AbstractRouteDef]:
    if not service.repositories:
        return ()
    from gitops_ds.service import git_deployer, webhook

    return webhook.routes(
        service, [part for part in parts if isinstance(part, git_deployer.GitDeployer)], tell
    )
