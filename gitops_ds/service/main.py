"""The service: starts and stops the deployers, the controller and the HTTP endpoints together. A
single service leads from the start, a replica while it holds the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence

from gitops_ds.controller import conflict_probe
from gitops_ds.core import errors
from gitops_ds.core.cluster import Cluster
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.base import Emit
from gitops_ds.core.events.bus import EventBus
from gitops_ds.core.leadership import Leadership
from gitops_ds.core.values import replace
from gitops_ds.kube.client import connect
from gitops_ds.kube.client.connect import Connection
from gitops_ds.kube.client.fence import Fence
from gitops_ds.kube.client.leader_election import Candidate
from gitops_ds.kube.client.leader_lease import Clocks, Election
from gitops_ds.kube.client.server_clock import ServerClock
from gitops_ds.kube.client.supervisor import Supervisor
from gitops_ds.kube.client.transport import RequestCounter
from gitops_ds.rollouts.state.rollout_ledger import RolloutLedger
from gitops_ds.service import assembly, http, kube_event_writer, otel, own_account
from gitops_ds.service.context import ServiceContext
from gitops_ds.service.runnable import Runnable
from gitops_ds.service.settings.service import Service

Say = Callable[[str], None]
GRACE = 2.0  # seconds in which a reconciliation may end
GRACE_AMONG_REPLICAS = 1.0  # another replica continues at once
SETTLE = 0.3  # seconds in which watches deliver the last writes of the previous leader
AGAIN = 1.0  # seconds between attempts to begin


async def run(service: Service, emit: Emit, say: Say, *, at_desk: bool) -> None:
    """Runs until SIGTERM or SIGINT. `at_desk` allows local repositories and the user's own ssh.

    Raises GitopsError if the start fails: wrong settings, no cluster. Later errors are emitted and
    retried.
    """
    _require_writes(service)
    stopping, events, leadership = _stop_signal(), EventBus(emit), Leadership(leads=False)
    clock = ServerClock(time.time, steady)
    fence, requests = Fence(steady), RequestCounter(clock=clock)
    settings = service.cluster
    connection = Connection(settings.kubeconfig, settings.context, settings.namespace)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(otel.exported(say))
        cluster, unfenced = await stack.enter_async_context(
            connect.fenced(connection, fence, requests, brief_replies=not service.direct)
        )
        version = await cluster.version()
        service = replace(service, own_account=await own_account.read(unfenced))
        of_pods = service.controller.powers is Powers.FULL
        emit_recorded = await stack.enter_async_context(
            kube_event_writer.recorded(cluster, events.publish, of_pods=of_pods)
        )
        owned = await assembly.owned_bodies(service, cluster)
        parts = assembly.assemble(
            ServiceContext(
                service=service,
                cluster=cluster,
                unfenced=unfenced,
                events=events,
                emit_recorded=emit_recorded,
                clock=clock.now,
                leadership=leadership,
                at_desk=at_desk,
                owned=owned,
            )
        )
        election = _election(service, unfenced, fence, emit_recorded)
        await stack.enter_async_context(http.served(service, events, parts, election, requests))
        alone = election is None
        if service.controller.powers is Powers.FULL and alone:
            stack.push_async_callback(conflict_probe.remove, cluster, service.cluster.namespace)
        callbacks = LeaderCallbacks(
            leadership, lambda: _before_leading(service, cluster, parts.ledger, alone=alone)
        )
        await _until(
            (stopping, Supervisor(events.publish, time.time, _is_final)),
            parts.runnables,
            (callbacks, election),
            lambda: say(_ready(service, version)),
        )


def _require_writes(service: Service) -> None:
    """Raises UsageError for deployers without permission to write."""
    deploys = service.repositories or service.templates is not None
    if service.controller.powers is Powers.OBSERVE and deploys:
        raise errors.UsageError(
            "powers observe allow no writes, so nothing can be applied: remove repository and "
            "templates, or set powers pace (`gitops-ds suspend` pauses all writes; "
            "`gitops-ds plan` and `drift` only compare)"
        )


async def _before_leading(
    service: Service, cluster: Cluster, ledger: RolloutLedger | None, *, alone: bool
) -> None:
    """Runs before this replica leads. Raises Refused if another DaemonSet controller is active."""
    if not alone:
        await asyncio.sleep(SETTLE)
    if ledger is not None:
        await ledger.begin()
    if service.controller.powers is Powers.FULL:
        await conflict_probe.only_one(cluster, service.cluster.namespace, time.time)


def _stop_signal() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return stopping


def _is_final(error: Exception) -> bool:
    """Whether an error of a part ends the service: one for its user. An internal error, which
    content of one repository or of the cluster may cause, ends no other part.
    """
    if isinstance(error, ExceptionGroup):
        return any(map(_is_final, error.exceptions))
    return isinstance(error, errors.GitopsError)


async def _until(
    supervision: tuple[asyncio.Event, Supervisor],
    parts: Sequence[Runnable],
    leadership_of: tuple[LeaderCallbacks, Election | None],
    started: Callable[[], None],
) -> None:
    """Runs the parts until the event of a stop, and releases the lease after their end.

    A part that does not end in time is cancelled: the next start continues its work.
    """
    stopping, supervisor = supervision
    callbacks, election = leadership_of
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(supervisor.keep(type(part).__name__, part.run)) for part in parts
        ]
        if election is None:
            callbacks.on_change(True, group)
        else:
            group.create_task(election.run(lambda leading: callbacks.on_change(leading, group)))
        started()
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
        f"following {', '.join(repository.url for repository in service.repositories)}"
        if service.repositories
        else "without a repository"
    )
    return f"ready: {follows}, powers {service.controller.powers}, Kubernetes {version}"


def steady() -> float:
    """Seconds of a monotonic clock that includes the time of system sleep, if available."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def _election(service: Service, cluster: Cluster, fence: Fence, emit: Emit) -> Election | None:
    """The election of the settings; without one the fence is open."""
    settings = service.election
    if not settings.held:
        fence.move(float("inf"))
        return None
    me = f"{socket.gethostname()}_{uuid.uuid4()}"
    candidate = Candidate(service.cluster.namespace, settings.lease, me, settings.timing)
    return Election(cluster, candidate, fence, emit, Clocks(steady, time.time, random.random))


class LeaderCallbacks:
    """Changes the leadership; `first` is awaited before each start."""

    def __init__(self, leadership: Leadership, first: Callable[[], Awaitable[None]]) -> None:
        self._leadership, self._first = leadership, first
        self._beginning: asyncio.Task[None] | None = None

    def on_change(self, leading: bool, group: asyncio.TaskGroup) -> None:
        """Starts or stops leading. An error of `first` ends the group."""
        if self._beginning is not None:
            self._beginning.cancel()
        if leading:
            self._beginning = group.create_task(self._begin())
        else:
            self._leadership.change(False)

    async def _begin(self) -> None:
        while True:
            try:
                await self._first()
                break
            except errors.ClusterError:
                await asyncio.sleep(AGAIN)
        self._leadership.change(True)
