"""With powers pace the pods of a DaemonSet are read only if its rollout may need a write: on
thousands of nodes there is an event of a pod at any time.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gitops_ds.controller.observer import Observer
from gitops_ds.core import names
from gitops_ds.core.cluster import EventType
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.objects import DAEMONSET, POD, Key, key_of
from gitops_ds.core.values import replace
from gitops_ds.daemonset.cache import WATCHED
from gitops_ds.rollouts.state import keys
from gitops_ds.testing import simulator
from tests.daemonset.world import World, daemonset

PACED = {keys.ROLLOUT_POLICY: '{"stages": []}'}
GATE = {"name": names.SCHEDULING_GATE}


class Seen:
    """An observer of a world with one DaemonSet, and the bodies."""

    def __init__(self) -> None:
        self.world = World(daemonset(), 2)
        self.world.settle()
        client = simulator.SimulatedCluster().client()
        self.observer = Observer(client, lambda _: None, clock=lambda: 0.0, chance=lambda: 0.5)
        for kind in WATCHED:
            self.observer.cache.replace(kind, self._bodies.get(kind, ()), "1")

    @property
    def _bodies(self) -> dict[Any, list[dict[str, Any]]]:
        return {DAEMONSET: [self.world.body], POD: [*self.world.pods.values()]}

    @property
    def is_paced(self) -> bool:
        return self.observer.is_paced(key_of(self.world.body))

    def annotate(self, annotations: dict[str, str]) -> None:
        self.world.body["metadata"].setdefault("annotations", {}).update(annotations)
        self.observer.cache.apply(DAEMONSET, EventType.MODIFIED, self.world.body, "2")

    def gated(self) -> dict[str, Any]:
        """A pod with our scheduling gate."""
        body = copy.deepcopy(next(iter(self.world.pods.values())))
        body["spec"]["schedulingGates"] = [GATE]
        return body


def test_a_daemonset_without_a_policy_is_not_paced() -> None:
    assert not Seen().is_paced


def test_an_unknown_daemonset_is_forgotten_by_its_turn() -> None:
    assert Seen().observer.is_paced(Key("apps", "DaemonSet", "default", "unknown"))


def test_a_policy_paces() -> None:
    seen = Seen()
    seen.annotate(PACED)
    assert seen.is_paced


def test_a_policy_that_only_its_deployer_states_paces() -> None:
    seen = Seen()

    def announced(daemonset: DaemonSet, _: Any) -> DaemonSet:
        return replace(daemonset, annotations=PACED)

    seen.observer.as_announced = announced
    assert seen.is_paced


@pytest.mark.parametrize("source", ["list", "event", "write"])
def test_gated_pods_are_deleted_although_the_policy_is_gone(source: str) -> None:
    seen = Seen()
    cache, body = seen.observer.cache, seen.gated()
    match source:
        case "list":
            cache.replace(POD, [body], "2")
        case "event":
            cache.apply(POD, EventType.MODIFIED, body, "2")
        case _:
            cache.wrote(POD, {**body, "metadata": {**body["metadata"], "resourceVersion": "9"}}, 0)
    assert seen.is_paced
    cache.apply(POD, EventType.DELETED, body, "10")
    assert not seen.is_paced


def test_a_pod_that_lost_its_gate_needs_no_turn() -> None:
    seen = Seen()
    body = seen.gated()
    seen.observer.cache.apply(POD, EventType.MODIFIED, body, "2")
    del body["spec"]["schedulingGates"]
    seen.observer.cache.apply(POD, EventType.MODIFIED, body, "3")
    assert not seen.is_paced
