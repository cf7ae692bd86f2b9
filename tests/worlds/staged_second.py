"""A second repository in a world with staged rollouts: another agent, without a policy, which the
same service runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from gitops_ds.core.objects import POD, Body
from gitops_ds.testing.simulator.store import ObjectStore
from tests.deploy.test_loop import History
from tests.worlds.staged_git import image, template_id

OWNER, SPACE, NAME = "second", "kube-public", "other"
LABELS = {"app": NAME}
READ_AFTER = 60.0  # seconds until a commit is applied, also by a service that has just started


@dataclass
class SecondRepository(History):
    """Its branch. `pushed`: when the last commit came; `guarded`: until then the guard on lost
    nodes may refuse an update.
    """

    pushed: float = 0.0
    guarded: float = 0.0
    bare: dict[str, float] = field(default_factory=dict)  # nodes without its agent, since when

    def commit(self, now: float) -> None:
        """Another image."""
        self.pushed = now
        self.push(f"other-{len(self.commits)}")

    def files(self, text: str) -> dict[str, str]:
        template = {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [{"name": NAME, "image": image(text)}]},
        }
        body = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": NAME, "namespace": SPACE},
            "spec": {"selector": {"matchLabels": LABELS}, "template": template},
        }
        return {"gitops-ds.yaml": "version: v1\n", "agents/other/daemonset.json": json.dumps(body)}

    def difference(self, live: Body | None, now: float, running: float) -> str:
        """How the DaemonSet differs from Git, if that lasts too long; empty otherwise. `running`:
        since then the service runs and may update it.
        """
        if now - max(self.pushed, running) < READ_AFTER:
            return ""
        wanted = self.commits[self.at]
        if live is None:
            return f"there is no DaemonSet {NAME}"
        found = template_id(live["spec"]["template"])
        return "" if found == wanted else f"the DaemonSet {NAME} has {found}, Git has {wanted}"

    def nodes_without(
        self, store: ObjectStore, nodes: Iterable[str], now: float
    ) -> dict[str, float]:
        """The well nodes without its agent, and since when."""
        running = {
            (body["spec"].get("nodeName") or "")
            for body in store.all(POD)
            if body["metadata"]["namespace"] == SPACE
        }
        self.bare = {node: self.bare.get(node, now) for node in nodes if node not in running}
        return self.bare
