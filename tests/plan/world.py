"""A repository as a dictionary of files, and the reconciliations of a deployer, on any cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import PurePosixPath
from typing import Any

import orjson

from gitops_ds.core.change import Plan
from gitops_ds.core.cluster import Cluster
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.deployer import Applied
from gitops_ds.core.objects import CommitId
from gitops_ds.core.skip_reasons import Skipped
from gitops_ds.core.sources.source_tree import CommitInfo, SourceTree
from gitops_ds.deploy import state_store
from gitops_ds.deploy.apply import plan_draft, plan_execution
from gitops_ds.deploy.apply.plan_draft import PlanDraft
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.ownership.options import ApplyOptions, Guards
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time

Files = Mapping[str, Any]  # a name, and a text, bytes, one body or a list of them
NOBODY_WAITS = ApplyOptions(patience=0)
STATE_NAMESPACE = "gitops-ds"


def pruning(approved: str = "", **guards: Any) -> ApplyOptions:
    """Deletions are enabled, with these limits and an approved hash."""
    return ApplyOptions(Guards(**{"prune": True, **guards}), approved=approved, patience=0)


PRUNING = pruning()


def commit(subject: str) -> CommitInfo:
    """A commit that is a function of its subject."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return CommitInfo(
        CommitId(sha1(subject.encode()).hexdigest()), (), now, "Ada <ada@example.com>", subject
    )


def snapshot(files: Files, subject: str = "first") -> SourceTree:
    return SourceTree(
        commit(subject), {PurePosixPath(name): _bytes(content) for name, content in files.items()}
    )


def _bytes(content: Any) -> bytes:
    if isinstance(content, str | bytes):
        return content.encode() if isinstance(content, str) else content
    some = content if isinstance(content, list) else [content]
    return b"\n---\n".join(map(orjson.dumps, some))


@dataclass(frozen=True)
class Pass:
    """The result of one reconciliation."""

    plan: Plan
    writes: int
    refusals: tuple[Skipped, ...]
    written: tuple[str, ...]
    state: DeployerState

    @property
    def guards(self) -> list[str]:
        return [refusal.reason for refusal in self.refusals]


@dataclass
class World:
    """A deployer for one repository on one cluster."""

    cluster: Cluster
    owner: str = "test"
    namespace: str = ""
    state_namespace: str = STATE_NAMESPACE
    records: list[Event] = field(default_factory=list)
    clock: Callable[[], float] = lambda: 0.0

    @property
    def place(self) -> DeployTarget:
        return DeployTarget(
            self.cluster,
            self.state_namespace,
            self.owner,
            "https://git.example.com/fleet.git",
            clock=self.clock,
        )

    async def draft(
        self, files: Files, subject: str = "first", options: ApplyOptions = NOBODY_WAITS
    ) -> PlanDraft:
        prepared = prepare.prepare(snapshot(files, subject), namespace=self.namespace)
        assert prepared.deployable, [finding for finding in prepared.findings if finding.refused]
        return await plan_draft.draft(self.place, prepared.bundle, commit(subject), options)

    async def apply(
        self, files: Files, subject: str = "first", options: ApplyOptions = NOBODY_WAITS
    ) -> Pass:
        draft = await self.draft(files, subject, options)
        return await self.carry_out(draft, options)

    async def carry_out(self, draft: PlanDraft, options: ApplyOptions = NOBODY_WAITS) -> Pass:
        events: list[Event] = []
        done = await plan_execution.carry_out(self.place, draft, options, events.append, self.clock)
        self.records += events
        written = tuple(
            f"{r.change.operation.value} {r.change.key}" for r in events if isinstance(r, Applied)
        )
        ended = done.ended
        return Pass(draft.plan, ended.writes, ended.refusals, written, done.state)

    async def state(self) -> DeployerState:
        return await state_store.load(self.cluster, self.state_namespace, self.owner)


def play(
    scene: Callable[[World, simulator.SimulatedCluster], Awaitable[None]], nodes: int = 3
) -> None:
    """A scene on a simulated cluster, in virtual time."""

    async def whole() -> None:
        async with simulator.SimulatedCluster() as cluster:
            cluster.add_nodes(simulator.NodeSpec(f"node-{i}") for i in range(nodes))
            await scene(World(cluster.client()), cluster)

    virtual_time.run(whole())


def daemonset(
    name: str = "agent",
    image: str = "registry.example.com/agent:1",
    namespace: str = "default",
    **spec: Any,
) -> dict[str, Any]:
    """A small DaemonSet; `spec` is merged into the pod's."""
    labels = {"app": name}
    pod = {"containers": [{"name": "agent", "image": image}], **spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def config_map(name: str, namespace: str = "default", /, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


KEPT = {"kept.yaml": config_map("kept")}
