"""A Kubernetes cluster inside this process, in virtual or real time; see `Cluster`."""

from __future__ import annotations

from gitops_ds.cluster.simulated import requests
from gitops_ds.cluster.simulated.client import Client, Habits
from gitops_ds.cluster.simulated.requests import Count, Faults
from gitops_ds.cluster.simulated.server import Server
from gitops_ds.cluster.simulated.virtual_time import EPOCH, clock
from gitops_ds.model import names


class Cluster(Client):
    """The whole simulated cluster, and its first client. Times are seconds since 1970: `epoch` plus the running loop's time.

    No DaemonSet controller is in it: that is ours to bring.
    """

    def __init__(self, *, seed: int = 1, epoch: float = EPOCH, habits: Habits = Habits(), history: int = 10_000) -> None:  # noqa: B008
        server = Server(clock(epoch), seed, history)
        super().__init__(server, habits=habits)

    async def start(self) -> None:
        """Makes the namespaces that every cluster has, and lets the cluster's own actors begin."""
        self.server.begin()

    async def stop(self) -> None:
        """Ends the actors."""

    def client(self, manager: str = names.FIELD_MANAGER, faults: Faults = requests.none) -> Client:
        """Another client, with its own count and faults."""
        return Client(self.server, manager, self.habits, faults, Count())
