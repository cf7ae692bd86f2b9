"""The service: the scheduled deployer loop and the controller core, put together and stopped
together.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gitops_ds import errors
from gitops_ds.client import connect
from gitops_ds.client.connect import Connection
from gitops_ds.client.fence import Fence
from gitops_ds.client.leader_lease import Election
from gitops_ds.client.request_counter import RequestCounter
from gitops_ds.controller import conflict_probe
from gitops_ds.controller.controller import Controller, Powers
from gitops_ds.controller.journal.files import Journal
from gitops_ds.fleet import reporter
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.deployment import DeployerState
from gitops_ds.model.events.base import Emit
from gitops_ds.model.source_status import SourceStatus
from gitops_ds.service import event_recorder, http, leadership, otel
from gitops_ds.service.http import EventBus, MetricsInputs, Probes
from gitops_ds.service.runnable import Runnable
from gitops_ds.settings.service import Service

if TYPE_CHECKING:
    from gitops_ds.service.git_deployer import GitDeployer
    from gitops_ds.service.notifications.dispatcher import NotificationDispatcher
    from gitops_ds.service.template_deployer import TemplateDeployer

Say = Callable[[str], None]
GRACE = 2.0  # seconds that a pass or a turn has to come to its end
GRACE_AMONG_REPLICAS = 1.0  # another goes on at once


async def run(service: Service, emit: Emit, say: Say, *, at_desk: bool) -> None:
    """Runs until SIGTERM or SIGINT. `at_desk`: local repositories and the person's own ssh are
    theirs to use.

    Raises GitopsError when it can't begin: wrong settings, no cluster. Later trouble is told and
    tried again.
    """
    if service.controller.powers is Powers.OBSERVE and (
        service.repositories or service.templates is not None
    ):
        raise errors.UsageError(
            "powers observe change nothing in the cluster, so nothing can be applied: remove "
            "repository and templates, or use powers "
            "pace (`gitops-ds suspend` pauses all writing; `gitops-ds plan` and `drift` only "
            "compare)"
        )
    stopping, events, fence, tally = (
        _asked_to_stop(),
        EventBus([emit]),
        Fence(leadership.steady),
        RequestCounter(),
    )
    connection = Connection(
        service.cluster.kubeconfig, service.cluster.context, service.cluster.namespace
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(otel.exported(say))
        stack.enter_context(_journal(service, events))
        cluster, free = await stack.enter_async_context(connect.fenced(connection, fence, tally))
        version = await cluster.version()
        news = _news(service, cluster, events)
        told = news.beside if news else (lambda tell, _: tell)
        deployers = list(
            _followings(
                service, (cluster, free), lambda number: told(events.publish, number), at_desk
            )
        )
        noted = await stack.enter_async_context(
            event_recorder.recorded(cluster, None, events.publish)
        )
        # who observes writes on no agent
        hear = events.publish if service.controller.powers is Powers.OBSERVE else noted
        controller = _controller(service, cluster, hear)
        home = reporter.StatusTarget(
            cluster,
            service.cluster.namespace,
            service.health.progress_deadline,
            service.controller.powers is not Powers.FULL,
        )
        known = reporter.ReporterInput(
            lambda: _remembered(deployers), lambda: _sources(deployers), lambda: controller.ages
        )
        observed = reporter.StatusReporter(home, controller, known, hear)
        events.subscribers.append(observed.handle)
        parts: list[Runnable] = [*deployers, controller, observed]
        if news is not None:
            news.watch(observed.tracker, deployers[len(deployers) - len(service.repositories) :])
            parts.append(news)
        election = leadership.election(service, free, fence, noted)
        if service.listen.address or service.listen.probes:
            inputs = MetricsInputs(observed, controller, tally, deployers)
            shown = await stack.enter_async_context(http.page(service, events, observed, deployers))
            await stack.enter_async_context(
                http.served(
                    service,
                    events,
                    Probes(parts, election, service.listen.readiness),
                    inputs,
                    shown,
                )
            )
        if service.controller.powers is Powers.FULL and election is None:
            stack.push_async_callback(conflict_probe.remove, cluster, service.cluster.namespace)
        callbacks = leadership.LeaderCallbacks(
            parts, lambda: _before_leading(service, cluster, alone=election is None)
        )
        await _until(stopping, parts, (callbacks, election), lambda: say(_ready(service, version)))


@contextlib.contextmanager
def _journal(service: Service, events: EventBus) -> Iterator[None]:
    """Writes down every turn, where the settings say so."""
    if not service.journal.path:
        yield
        return
    journal = Journal(Path(service.journal.path), service.journal.limits, events.publish)
    events.subscribers.append(journal.handle)
    with contextlib.closing(journal):
        yield


async def _before_leading(service: Service, cluster: Cluster, *, alone: bool) -> None:
    """What must be sure when it is our turn. Raises Refused when another DaemonSet controller is at
    work.
    """
    if not alone:
        await asyncio.sleep(leadership.SETTLE)
    if service.controller.powers is Powers.FULL:
        await conflict_probe.only_one(cluster, service.cluster.namespace, time.time)


def _asked_to_stop() -> asyncio.Event:
    """Set by SIGTERM and SIGINT."""
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return stopping


def _remembered(deployers: Iterable[GitDeployer | TemplateDeployer]) -> Mapping[str, DeployerState]:
    """What each owner remembers, by its id; of those that looked once."""
    loops = [deployer.loop for deployer in deployers if deployer.loop is not None]
    return {loop.owner: loop.deployer_state for loop in loops if loop.deployer_state is not None}


def _sources(deployers: Iterable[GitDeployer | TemplateDeployer]) -> Mapping[str, SourceStatus]:
    """The status of each followed repository, by its owner's id."""
    return {status.id: status for deployer in deployers if (status := deployer.status) is not None}


def _news(service: Service, cluster: Cluster, events: EventBus) -> NotificationDispatcher | None:
    """Who tells people outside of the cluster, where the settings ask for it."""
    if not (service.notify or any(one.forge for one in service.repositories)):
        return None
    from gitops_ds.service.notifications import dispatcher

    news = dispatcher.NotificationDispatcher(service, cluster, events.publish)
    events.subscribers.append(news.handle)
    return news


def _followings(
    service: Service,
    reached: tuple[Cluster, Cluster],
    told: Callable[[int | None], Emit],
    at_desk: bool,
) -> Iterable[GitDeployer | TemplateDeployer]:
    """The deployers: one for each repository, and one for the templates in the cluster.

    The cluster is `reached` behind the fence, and without one. `told` gives whom the deployer of a
    repository tells, by its number in the settings, and that of the templates (None).
    """
    if not service.repositories and service.templates is None:
        return
    # Git, the renderer and the scheduler take 10 MiB, which a controller alone has no use for.
    from gitops_ds.deployer.object_claims import Claims, Rank
    from gitops_ds.sandbox import memory
    from gitops_ds.service import git_deployer, prepare_process, template_deployer

    cluster, free = reached
    claims = Claims(
        {Rank.GIT: len(service.repositories), Rank.TEMPLATES: int(service.templates is not None)}
    )
    shared = prepare_process.Preparing(
        memory.here(), len(service.repositories) + int(service.templates is not None)
    )
    around = git_deployer.ServiceContext(
        service, cluster, free, told(None), at_desk, claims=claims, preparing=shared
    )
    if (chosen := service.chosen_templates) is not None:
        part = template_deployer.TemplateDeployer(
            service, chosen, cluster, claims, told(None), shared
        )
        around.owners[part.owner] = "templates in the cluster"
        yield part
    for number, settings in enumerate(service.repositories):
        yield git_deployer.GitDeployer(replace(around, tell=told(number)), settings)


def _controller(service: Service, cluster: Cluster, emit: Emit) -> Controller:
    """It runs whatever its powers are: what it sees is what the page and the metrics show."""
    controller = Controller(
        cluster, service.controller.powers, emit, clock=time.time, chance=random.random
    )
    if service.direct:
        controller.place_directly()
    controller.runs_on(service.own_node)
    return controller


async def _until(
    stopping: asyncio.Event,
    parts: Sequence[Runnable],
    leads: tuple[leadership.LeaderCallbacks, Election | None],
    begun: Callable[[], None],
) -> None:
    """Runs the parts until asked to stop; what is not over some seconds later is cut, for the next
    start goes on from there.

    The lease is given back when all is over.
    """
    callbacks, election = leads
    async with asyncio.TaskGroup() as group:
        for part in parts:
            part.stop_leading()
        tasks = [group.create_task(part.run()) for part in parts]
        if election is None:
            callbacks.on_change(True, group)
        else:
            group.create_task(election.run(lambda leading: callbacks.on_change(leading, group)))
        begun()
        await stopping.wait()
        for part in parts:
            part.stop()
        _, late = await asyncio.wait(
            tasks, timeout=GRACE if election is None else GRACE_AMONG_REPLICAS
        )
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        callbacks.on_change(False, group)
        if election is not None:
            election.stop()


def _ready(service: Service, version: str) -> str:
    follows = (
        f"following {', '.join(one.url for one in service.repositories)}"
        if service.repositories
        else "without a repository"
    )
    return f"ready: {follows}, powers {service.controller.powers}, Kubernetes {version}"
