"""The repository of a world with staged rollouts: images, policies, and the measurements of a gate.

The name of an image decides how its agent does: `good-1`, `bad-1` (fails on every node), `late-1`
(crashes some minutes after it became ready) and `mute-1` (runs well, and most nodes have no
series of the gate).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gitops_ds.core.objects import Body, CommitId, Key
from gitops_ds.core.rollouts.rollout_gates import (
    GateRequest,
    GateSample,
    PrometheusRequest,
    Reading,
)
from tests.deploy.test_loop import History

SPACE, NAME, LABELS = "default", "agent", {"app": "agent"}
GOOD, BAD, LATE, MUTE = "good", "bad", "late", "mute"
PORT = 9999
DEMANDS: dict[str, Any] = {
    "ports": [{"containerPort": PORT, "hostPort": PORT}],
    "resources": {"requests": {"cpu": "1"}},
}
QUERY = 'rate(agent_records_total{node=~"$nodes"}[5m])'


class Shape(msgspec.Struct, frozen=True):
    """A rollout policy; times are seconds, shares per cent. `pool` is a stage for the nodes of pool
    `a`, `gate` a measured gate of the canary, `between` the soakBetween of zones, `approval` that
    of the stage `rest`.
    """

    canary: int = 1
    soak: int = 60
    rest_soak: int = 15
    at_risk: int = 20
    parked: int = 50
    late: bool = False
    rolling: bool = False
    finish_first: bool = False
    between: int | None = None
    pool: bool = False
    gate: bool = False
    approval: bool = False

    def cap(self, nodes: int) -> int:
        """The most nodes at risk."""
        return max(1, -(-self.at_risk * nodes // 100))

    def document(self) -> dict[str, Any]:
        """The content of rollout.yaml."""
        pace = {"start": 2, "max": "50%"}
        canary: dict[str, Any] = {
            "name": "canary",
            "nodes": {"count": self.canary},
            "soak": f"{self.soak}s",
            "pace": {"start": self.canary},
        }
        rest: dict[str, Any] = {"name": "rest", "soak": f"{self.rest_soak}s", "pace": pace}
        gates: dict[str, Any] = {"pods": {"readyWithin": "60s"}}
        if self.gate:
            canary["gates"] = ["pods", "nodes", "flow"]
            gates["flow"] = {"prometheus": QUERY, "above": 10, "noData": "hold"}
        if self.between is not None:
            rest |= {
                "oneAtATime": "topology.kubernetes.io/zone",
                "soakBetween": f"{self.between}s",
            }
        if self.approval:
            rest["approval"] = {"from": ["team"], "within": "1h"}
        pool = {
            "name": "pool",
            "where": {"match": [{"key": "pool", "in": ["a"]}]},
            "soak": f"{self.rest_soak}s",
            "pace": pace,
        }
        return {
            "stages": [canary, *([pool] if self.pool else []), rest],
            "limits": {"atRisk": {"cluster": f"{self.at_risk}%"}, "parked": f"{self.parked}%"},
            "gates": gates,
            "onFailure": {"revert": {"how": "none"}},
            "progress": {"perNode": "5m"},
            **({"template": {"commit": "late"}} if self.late else {}),
            **({"atRest": "RollingUpdate"} if self.rolling else {}),
            **({"supersede": "finish-first"} if self.finish_first else {}),
        }


def draw_shape(chance: random.Random, *, gates: bool, base: Shape | None = None) -> Shape:
    """One of the policies that people write. `base` is the policy before: its stages stay."""
    has_gate = gates and chance.random() < 0.2
    is_pool = chance.random() < 0.25
    return Shape(
        canary=chance.randint(2, 3) if has_gate else chance.choice((1, 1, 2, 3)),
        soak=chance.choice((30, 45, 60)),
        rest_soak=chance.choice((5, 15, 30)),
        at_risk=chance.choice((5, 10, 20, 30, 50)),
        parked=chance.choice((20, 50, 100)),
        late=chance.random() < 0.15,
        rolling=chance.random() < 0.15,
        finish_first=not has_gate and chance.random() < 0.15,
        between=chance.choice((0, 30, 60)) if chance.random() < 0.35 else None,
        pool=base.pool if base else is_pool,
        gate=has_gate,
        approval=base.approval if base else chance.random() < 0.15,
    )


class Content(msgspec.Struct, frozen=True):
    """The content of a commit: the tag of the image, and the policy; None without one. `demands`:
    the agent requests CPU and a host port.
    """

    tag: str
    shape: Shape | None
    demands: bool = False

    def files(self) -> dict[str, str]:
        """The files of the commit."""
        files = {"gitops-ds.yaml": "version: v1\n", "agents/agent/daemonset.json": self._daemonset}
        if self.shape is not None:
            files["agents/agent/rollout.yaml"] = json.dumps(self.shape.document())
        return files

    @property
    def template(self) -> Body:
        """The pod template, without the defaults of the API server."""
        container = {"name": "agent", "image": image(self.tag), **(DEMANDS if self.demands else {})}
        return {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}

    @property
    def _daemonset(self) -> str:
        return json.dumps(
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {"name": NAME, "namespace": SPACE},
                "spec": {"selector": {"matchLabels": LABELS}, "template": self.template},
            }
        )


def image(tag: str) -> str:
    """The image of a tag."""
    return f"example.com/agent:{tag}"


def template_id(template: Any) -> str:
    """A template or a pod in one word: the tag of its image, and what Git never has in it. The time
    of `kubectl rollout restart` does not count: the deployer keeps annotations of others.
    """
    spec = template["spec"]
    (container, *_) = spec["containers"]
    more = "+elsewhere" if spec.get("nodeSelector") else ""
    if "memory" in ((container.get("resources") or {}).get("requests") or {}):
        more += "+memory"
    return str(container["image"]).rpartition(":")[2] + more


@dataclass
class StagedHistory(History):
    """The branch, and what its tip had at each time."""

    contents: list[Content] = field(default_factory=list)
    tips: list[tuple[float, Content]] = field(default_factory=list)

    def commit(self, content: Content, now: float) -> CommitId:
        """Pushes a commit."""
        self.contents.append(content)
        self.tips.append((now, content))
        return self.push(str(len(self.contents) - 1))

    def reset(self, index: int, now: float) -> None:
        """A forced push of an earlier commit."""
        self.at = index
        self.tips.append((now, self.contents[index]))

    def files(self, text: str) -> dict[str, str]:
        return self.contents[int(text)].files()

    def content(self, commit: str) -> Content | None:
        """The content of a commit; None for an unknown one."""
        index = self.index(CommitId(commit)) if commit else -1
        return self.contents[index] if 0 <= index < len(self.contents) else None

    @property
    def wanted(self) -> Content:
        """The content of the tip."""
        return self.contents[self.at]

    def since(self, time: float) -> list[Content]:
        """The contents that the tip had since a time."""
        later = [content for at, content in self.tips if at > time]
        earlier = [content for at, content in self.tips if at <= time]
        return [*earlier[-1:], *later]


@dataclass
class Meter:
    """A Prometheus server with a series for each node with an agent; of a mute one, for every third
    node.
    """

    clock: Callable[[], float]
    running: Callable[[str], str]  # the tag on a node
    interval: float = 15.0

    def has_series(self, node: str) -> bool:
        """Whether the agent of the node sends records."""
        tag = self.running(node)
        return bool(tag) and (not tag.startswith(MUTE) or node.endswith(("0", "3", "6", "9")))

    async def measure(self, request: GateRequest) -> Reading:
        """The records of the touched nodes."""
        nodes = request.subject.nodes
        assert isinstance(request, PrometheusRequest)
        samples = tuple(
            GateSample(100.0, f'{{node="{node}"}}', node=node)
            for node in nodes
            if self.has_series(node)
        )
        reason = "" if samples else "the query has no result"
        about = frozenset(nodes)
        return Reading(self.clock(), frozenset(nodes), samples, reason=reason, about=about)

    def forget(self, key: Key) -> None:
        """There is no state."""
