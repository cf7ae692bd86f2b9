"""Nodes on which the DaemonSet controller made a pod before the pinned one."""

from __future__ import annotations

import itertools
from typing import Any

from gitops_ds.model.decision import CreatePod, DeletePod
from gitops_ds.rollouts.node_selection import RETRY_AFTER
from tests.rollouts.rollout_world import SECOND, RolloutWorld

POLICY: dict[str, Any] = {
    "stages": [{"name": "canary", "nodes": {"count": 1}, "soak": "10s"}, "rest"],
    "limits": {"atRisk": {"cluster": "100%"}},
}


def test_the_next_try_waits() -> None:
    world = RolloutWorld(POLICY, 3)
    world.commit(SECOND)
    began, tries = world.now, []
    for _ in range(60):
        inputs = world.inputs()
        assert inputs is not None
        staged = world.decide(world.observe(), inputs)
        deleted = [one for one in staged.decision.actions if isinstance(one, DeletePod)]
        if deleted and len(tries) < 3:  # the pod ends at once: the other controller creates first
            tries.append(world.now - began)
            for action in staged.decision.actions:
                if not isinstance(action, CreatePod):
                    world.perform(action)
            for one in deleted:
                world.vanish(one.key.name)
            world.turn()
        else:
            for action in staged.decision.actions:
                world.perform(action)
            world.turn()
        world.deploy()
        world.kubelets()
        assert staged.decision.actions or not tries or staged.decision.wake_after is not None
    assert len(tries) == 3, tries
    assert all(later - earlier >= RETRY_AFTER for earlier, later in itertools.pairwise(tries))
    world.run()
    assert len(world.on(SECOND)) == 3
