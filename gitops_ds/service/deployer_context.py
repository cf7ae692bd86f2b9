"""What the deployers of one service share. Only a service with deployers imports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from gitops_ds.core.live import Revision
from gitops_ds.deploy.object_claims import Claims
from gitops_ds.deploy.target import KnownPods
from gitops_ds.rollouts.state.announced_daemonsets import DaemonSetWrite
from gitops_ds.rollouts.state.rollout_ledger import RolloutLedger
from gitops_ds.service import prepare_process
from gitops_ds.service.context import ServiceContext
from gitops_ds.source.sandbox import memory
from gitops_ds.source.sandbox.turns import Turns


class DeployerContext(ServiceContext, frozen=True, kw_only=True):
    """The context of the service with the state of its deployers; `owners` maps the ids of owners
    to their repositories, and `claim` gets each id with its approvers: the controller paces the
    agents of no other owner. `ledger` has the records of rollouts that count, `known_pods` the
    pods that the controller watches.
    """

    claim: Callable[..., None] = lambda *owners, approvers=(): None
    ledger: RolloutLedger | None = None
    known_pods: KnownPods = lambda _: None
    owners: dict[str, str] = msgspec.field(default_factory=dict)
    claims: Claims = msgspec.field(default_factory=Claims)
    fetching: Turns = msgspec.field(default_factory=lambda: Turns(memory.here().fetches))
    preparing: prepare_process.Preparing = msgspec.field(
        default_factory=lambda: prepare_process.Preparing(memory.here())
    )

    def attested(self, revision: Revision) -> Revision:
        """A revision with only the records that the service wrote."""
        return revision if self.ledger is None else self.ledger.attested(revision)

    async def announce(self, writes: Iterable[DaemonSetWrite]) -> None:
        """Stores which annotations of DaemonSets count in their rollouts. Raises ClusterError."""
        if self.ledger is not None:
            await self.ledger.announce_daemonsets(writes)
