"""What the parts of one service share."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gitops_ds.core.cluster import Cluster
from gitops_ds.core.events.base import Emit
from gitops_ds.core.events.bus import EventBus
from gitops_ds.core.leadership import Leadership
from gitops_ds.kube.client.owned_bodies import OwnedBodies
from gitops_ds.service.settings.service import Service


class ServiceContext(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster, behind the fence and without it, for requests to the leader, and the events of
    the parts.

    `emit_recorded` emits an event and writes its Kubernetes event. The parts write under
    `leadership`. `clock` gives seconds since 1970 as the API server. `owned`: the objects whose
    bodies are kept whole, None without deployers.
    """

    service: Service
    cluster: Cluster
    unfenced: Cluster
    events: EventBus
    emit_recorded: Emit
    clock: Callable[[], float]
    leadership: Leadership = msgspec.field(default_factory=Leadership)
    at_desk: bool = False
    owned: OwnedBodies | None = None
