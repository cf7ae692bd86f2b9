"""A Kubernetes cluster inside this process, in virtual or real time; see `SimulatedCluster`."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable

from gitops_ds.core import names
from gitops_ds.core.objects import NODE, POD, Resource
from gitops_ds.testing.simulator import client, nodes
from gitops_ds.testing.simulator import faults as simulator_faults
from gitops_ds.testing.simulator.client import Client, Habits
from gitops_ds.testing.simulator.faults import Count, Faults, Silence, SimulatedRequest
from gitops_ds.testing.simulator.garbage_collector import Garbage
from gitops_ds.testing.simulator.kubelets import Behaviour, Kubelets, PodFault, Trouble
from gitops_ds.testing.simulator.nodes import Lifecycle, NodeSpec
from gitops_ds.testing.simulator.scheduler import Scheduler
from gitops_ds.testing.simulator.server import Server
from gitops_ds.testing.simulator.store import Backup, StoredChange
from gitops_ds.testing.simulator.virtual_time import EPOCH, clock

__all__ = [
    "Behaviour",
    "Client",
    "Count",
    "Faults",
    "Habits",
    "NodeSpec",
    "PodFault",
    "Silence",
    "SimulatedCluster",
    "SimulatedRequest",
    "Trouble",
]


class SimulatedCluster(Client):
    """The whole simulated cluster, and its first client; an async context manager.

    It has an API server, a scheduler, kubelets, node lifecycle, garbage and namespace controllers.
    It has no DaemonSet controller. Times are `epoch` plus the running loop's time; the same calls
    in virtual time result in the same objects, uids and versions (uids contain `seed`). `history`
    changes of each kind are kept for watches.

    Not simulated: permissions, webhooks, quotas, service accounts, preemption, probes, volumes, and
    API versions other than the preferred one.
    """

    def __init__(
        self,
        behaviour: Behaviour = Behaviour(),  # noqa: B008  a frozen value
        *,
        seed: int = 1,
        epoch: float = EPOCH,
        habits: Habits = Habits(),  # noqa: B008  a frozen value
        history: int = 10_000,
    ) -> None:
        server = Server(clock(epoch), seed, history)
        super().__init__(server, habits=habits)
        self.kubelets = Kubelets(server, behaviour)
        self._lifecycle, self._scheduler, self._garbage = (
            Lifecycle(server),
            Scheduler(server),
            Garbage(server),
        )
        self._clients: list[Client] = [self]
        self._changes: deque[tuple[Resource, StoredChange]] = deque()
        self._wake = asyncio.Event()
        self._actors: asyncio.Task[None] | None = None
        server.store.listener = self._handle_change

    async def __aenter__(self) -> SimulatedCluster:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Creates the namespaces of every cluster, and starts the cluster's own actors."""
        self.server.begin()
        self._actors = asyncio.create_task(self._act(), name="actors of the simulated cluster")

    async def stop(self) -> None:
        """Ends the actors and all watches. An error of an actor is raised here."""
        self.kubelets.stop()
        self._lifecycle.stop()
        self.cut_all_watches()
        if self._actors is not None:
            self._actors.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._actors

    def client(
        self, manager: str = names.FIELD_MANAGER, faults: Faults = simulator_faults.none
    ) -> Client:
        """Another client, with its own counter and faults."""
        made = Client(self.server, manager, self.habits, faults)
        self._clients.append(made)
        return made

    def cut_all_watches(self) -> None:
        """Ends every watch of every client, as a restart of the API server does."""
        for each in self._clients:
            each.cut_watches()

    def compact(self) -> None:
        """Drops all history: a watch from an earlier version is Expired."""
        self.server.store.compact()

    def restore(self, backup: Backup) -> None:
        """Restores all objects like a backup of etcd; every watch ends, as at a restart of the API
        server.
        """
        self.server.store.restore(backup, self.server.structures.served.__getitem__)
        self.cut_all_watches()

    def add_nodes(self, specs: Iterable[NodeSpec]) -> None:
        """Creates nodes, ready at once."""
        for spec in specs:
            self.server.create(NODE, nodes.body_of(spec, client.VERSION), "kubelet")
            self._lifecycle.heartbeat(spec.name)

    def remove_node(self, name: str) -> None:
        """Removes a node permanently; its pods are collected later."""
        self.kubelets.die(name)
        self.server.delete(NODE, "", name)

    def kill_node(self, name: str) -> None:
        """Stops the heartbeats of the node; after 50 s the cluster detects that (Ready Unknown,
        unreachable).
        """
        self.kubelets.die(name)
        self._lifecycle.heartbeats_lost(name)

    def revive_node(self, name: str) -> None:
        """Restarts the node."""
        self.kubelets.revive(name)
        self._lifecycle.heartbeat(name)

    def reboot_node(self, name: str) -> None:
        """Starts the system of a killed node again, with another boot id: its containers start
        again.
        """
        self._lifecycle.booted(name)
        self.kubelets.revive(name, rebooted=True)
        self._lifecycle.heartbeat(name)

    def unready_node(self, name: str) -> None:
        """Makes the node's kubelet report it as not ready; its pods continue."""
        self._lifecycle.set_ready(name, "False", "KubeletNotReady")

    def _handle_change(self, resource: Resource, change: StoredChange) -> None:
        self._changes.append((resource, change))
        self._wake.set()

    async def _act(self) -> None:
        """Passes each change to each actor, in order; their own writes follow."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._changes:
                resource, change = self._changes.popleft()
                self._garbage.saw(resource, change)
                if resource == POD:
                    self._lifecycle.saw_pod(change)
                    self.kubelets.saw_pod(change)
                    self._scheduler.saw_pod(change)
                elif resource == NODE:
                    self._lifecycle.saw_node(change)
                    self._scheduler.saw_node(change)
            self._scheduler.bind()
