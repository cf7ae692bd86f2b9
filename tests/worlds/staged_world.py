"""One world with staged rollouts: the service and, with powers pace, the built-in DaemonSet
controller, on a simulated cluster in virtual time.

The events are in `staged_events`, the invariants in `staged_invariants`, and what the world knows
by itself in `staged_oracle`; `staged_play` plays a world.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gitops_ds.controller.controller import Controller
from gitops_ds.core import errors, names
from gitops_ds.core.cluster import EventType
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.rollouts import RolloutHalted
from gitops_ds.core.objects import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DAEMONSET,
    NODE,
    POD,
    Body,
    Resource,
)
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.deploy import loop as deployer_loop
from gitops_ds.deploy import revision_selector, state_store
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.rollouts.state import keys
from gitops_ds.rollouts.state.rollout_ledger import RolloutLedger
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import NodeSpec
from gitops_ds.testing.simulator import faults as simulator_faults
from gitops_ds.testing.simulator.faults import Faults, RequestFault, SimulatedRequest
from gitops_ds.testing.simulator.store import StoredChange
from tests.deploy.rollout_scene import NoRollouts, led
from tests.deploy.test_loop import History, announced_in
from tests.simulator.setup import strict
from tests.worlds import staged_oracle, staged_second
from tests.worlds.staged_git import (
    GOOD,
    NAME,
    SPACE,
    Content,
    Meter,
    Shape,
    StagedHistory,
    template_id,
)
from tests.worlds.staged_invariants import BARE, Judge, Situation
from tests.worlds.staged_oracle import Oracle
from tests.worlds.staged_reverts import Reverts
from tests.worlds.staged_second import SecondRepository

OWNER, STATES = "test", "gitops-ds"
SCHEDULE = 30.0  # seconds between two looks at Git
STEP = 5.0  # seconds between two judgements


@dataclass
class StagedWorld:
    """A cluster, the service on it, and what was found wrong."""

    chance: random.Random
    cluster: simulator.SimulatedCluster
    powers: Powers
    shape: Shape
    drift: DriftPolicy = DriftPolicy.CORRECT
    history: StagedHistory = field(default_factory=StagedHistory)
    second: SecondRepository | None = None  # in a world with a tenant
    story: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    failed: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: dict[str, list[asyncio.Task[Any]]] = field(default_factory=dict)
    clients: dict[str, list[simulator.Client]] = field(default_factory=dict)
    loop: deployer_loop.Loop | None = None
    controller: Controller | None = None
    number: int = 0
    fault: Faults = simulator_faults.none  # of the service

    def __post_init__(self) -> None:
        self.oracle = Oracle(self.history)
        self.situation = Situation(corrects_drift=self.drift is DriftPolicy.CORRECT)
        self.judge = Judge(self.oracle, self.situation, self._violated)
        self.reverts = Reverts(self.history, partial(self._violated, 11), self.cluster.server.now)
        self.meter = Meter(self.cluster.server.now, self._running)
        self.oracle.has_series = self.meter.has_series
        self.people = self.client(staged_oracle.PEOPLE, "kubectl-edit")
        self._reader = self.cluster.client()
        self._writing: tuple[str, str, Resource | None] = ("", "", None)
        self._listener = self.cluster.server.store.listener
        self.cluster.server.store.listener = self._saw

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return asyncio.get_running_loop().time()

    # --- processes

    def start(self) -> None:
        """Starts a process of the service, and with powers pace the built-in controller."""
        clock, chance = self.cluster.server.now, random.Random(self.chance.random()).random
        controller = self._controller(staged_oracle.SERVICE, self.powers, self._emit)
        if self.shape.gate:
            controller.observer.measure_with(self.meter)
        self.controller = controller
        ledger = RolloutLedger(self.client(staged_oracle.SERVICE), STATES)
        controller.attest(ledger)
        timing = deployer_loop.LoopTiming(5.0, clock, chance)
        self.loop = self._loop(OWNER, self.history, self.drift, timing, ledger)
        loops = [self.loop]
        if self.second is not None:
            correct = DriftPolicy.CORRECT
            loops.append(self._loop(staged_second.OWNER, self.second, correct, timing, ledger))
        runs = [run for loop in loops for run in (loop.run(), self._schedule(loop))]
        self._begin(staged_oracle.SERVICE, led(ledger, controller.run(), *runs))
        self.start_built_in()
        self.situation.running = self.now
        self.situation.runs_daemonsets = self.powers is Powers.FULL

    def _loop(
        self,
        owner: str,
        history: History,
        drift: DriftPolicy,
        timing: deployer_loop.LoopTiming,
        ledger: RolloutLedger,
    ) -> deployer_loop.Loop:
        client, clock = self.client(staged_oracle.SERVICE), timing.clock
        place = DeployTarget(client, STATES, owner, "memory", clock=clock, **announced_in(ledger))
        source = revision_selector.RevisionSource(
            history.tip,
            history.snapshot,
            history.movement,
            revision_selector.prepare_directly(prepare.prepare),
        )
        options = ApplyOptions(patience=0.0, drift=drift)
        return deployer_loop.Loop(source, place, options, self._emit, timing)

    def start_built_in(self) -> None:
        """Starts the built-in controller, with powers pace."""
        if self.powers is Powers.PACE and staged_oracle.BUILT_IN not in self.tasks:
            built_in = self._controller(staged_oracle.BUILT_IN, Powers.FULL, _ignore)
            built_in.observer.rollouts = NoRollouts(_ignore, self.cluster.server.now)
            self._begin(staged_oracle.BUILT_IN, built_in.run())
            if staged_oracle.SERVICE in self.tasks:
                self.situation.running = self.now

    def start_second(self) -> None:
        """Starts another service, of another repository, on the same cluster."""
        if staged_oracle.SECOND not in self.tasks:
            second = self._controller(staged_oracle.SECOND, Powers.PACE, _ignore)
            second.claim("another")
            self._begin(staged_oracle.SECOND, second.run())

    async def kill(self, who: str = staged_oracle.SERVICE) -> None:
        """Ends a process at once."""
        if who == staged_oracle.SERVICE or self.powers is Powers.PACE:
            self.situation.running = None
        tasks = self.tasks.pop(who, [])
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                self._violated(0, f"the {who} ended by itself: {result!r}")
        for client in self.clients.pop(who, []):
            client.cut_watches()

    def _controller(self, who: str, powers: Powers, emit: Callable[[Event], None]) -> Controller:
        chance = random.Random(self.chance.random()).random
        clock = self.cluster.server.now
        return Controller(self.client(who), powers, strict(emit), clock=clock, chance=chance)

    def _begin(self, who: str, *runs: Any) -> None:
        self.tasks[who] = [asyncio.create_task(run) for run in runs]
        for task in self.tasks[who]:
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._violated(0, f"a process ended by itself: {task.exception()!r}")

    async def _schedule(self, loop: deployer_loop.Loop) -> None:
        while True:
            loop.request()
            await asyncio.sleep(SCHEDULE)

    def client(self, who: str, manager: str = "gitops-ds") -> simulator.Client:
        """A client whose writes are judged as those of `who`."""
        client = self.cluster.client(manager, self._faults(who))
        self.clients.setdefault(who, []).append(client)
        return client

    # --- what is judged

    def _faults(self, who: str) -> Faults:
        def judge(request: SimulatedRequest) -> RequestFault | None:
            body = None
            if request.resource is not None and request.name:
                body = self.cluster.server.store.get(
                    request.resource, request.namespace, request.name
                )
            self.judge.request(who, request, body, self.now)
            fault = self.fault(request) if who == staged_oracle.SERVICE else None
            is_write = request.verb in ("create", "patch", "apply", "update")
            if is_write and fault is None and not request.dry_run:
                self._writing = (who, request.verb, request.resource)
            return fault

        return judge

    def _saw(self, resource: Resource, change: StoredChange) -> None:
        who, verb, kind = self._writing
        writer = who if kind == resource else "cluster"
        if resource in (POD, DAEMONSET):
            self._writing = ("", "", None)
        known = change.body["metadata"]["uid"] in self.oracle.pods
        self.oracle.saw(resource, change, writer, self.now)
        if resource == POD and verb == "create" and not known:
            uid = change.body["metadata"]["uid"]
            if uid in self.oracle.pods:
                self.judge.created(uid, writer, self.now)
        if writer == staged_oracle.SERVICE and change.type is not EventType.DELETED:
            self.judge.wrote(resource, verb, change.body)
        self._listener(resource, change)

    def _emit(self, event: Event) -> None:
        if isinstance(event, RolloutHalted):
            self.judge.halt(event, self.now)
            self.record(f"  halted: {event.halt.message}")

    def _violated(self, invariant: int, wrong: str) -> None:
        self.wrong.append(f"{invariant}: at {self.now:.0f} s {wrong}")
        self.failed.set()

    async def watch(self) -> None:
        """Judges what lasts."""
        epoch = self.cluster.server.now() - self.now
        round = 0
        while True:
            await asyncio.sleep(STEP)
            self.judge.step(self.now)
            if self.loop is not None:
                self.judge.state(self.loop.deployer_state)
                await self.reverts.judge(self.loop.stopped_rollouts)
            if self.second is not None:
                self._judge_second(self.second)
            round += 1
            if round % 3 == 0:
                await self.judge.show(self._reader, self.now, epoch)

    def _judge_second(self, second: SecondRepository) -> None:
        running, store, now = self.situation.running, self.cluster.server.store, self.now
        if running is None:
            second.bare.clear()
            return
        live = store.get(DAEMONSET, staged_second.SPACE, staged_second.NAME)
        well = {one.name: one.well or 0.0 for one in self.oracle.well_nodes()}
        if 5 * len(well) < 4 * len(self.oracle.nodes):
            # maxNodesLost: an update deletes the pods of nodes that are down, which get no others.
            second.guarded = now
        if difference := second.difference(live, now, max(running, second.guarded)):
            self._violated(10, difference)
        for node, since in second.nodes_without(store, well, now).items():
            if now - max(since, running, well[node]) > BARE:
                self._violated(10, f"{node} has no agent of the second repository")

    # --- what people do

    def record(self, text: str) -> None:
        """Adds a line to the story."""
        self.story.append(f"{self.now:6.0f} s: {text}")

    def push(self, tag: str, *, policy: bool | None = None) -> None:
        """A commit with this tag; with or without the policy, by default as before."""
        shape = self.history.wanted.shape if self.history.contents else None
        if policy is not None:
            shape = self.shape if policy else None
        self.history.commit(Content(tag, shape, self.second is not None), self.now)
        self.oracle.unblock("rewound", self.now)
        self.record(f"  push {tag}{'' if shape else ' without a policy'}")
        self._look()

    def reset(self, index: int) -> None:
        """A forced push of an earlier commit, which waits for an approval."""
        self.history.reset(index, self.now)
        self.oracle.blocked.setdefault("rewound", self.now)
        self.record(f"  back to {self.history.wanted.tag}")
        self._look()

    def _look(self) -> None:
        if self.loop is not None and self.chance.random() < 0.7:
            self.loop.request()

    def fresh(self, kind: str = GOOD) -> str:
        """A tag that was not used before."""
        self.number += 1
        return f"{kind}-{self.number}"

    def edited(self) -> None:
        """A person writes to the DaemonSet, its revisions or the requests."""
        self.oracle.edited_at = self.now

    def live(self) -> Body | None:
        """The DaemonSet."""
        return self.cluster.server.store.get(DAEMONSET, SPACE, NAME)

    async def steer(self, annotation: str, value: str | None) -> None:
        """Writes a request to the deployer."""
        self.edited()
        name = state_store.config_map_name(OWNER)
        if self.cluster.server.store.get(CONFIG_MAP, STATES, name) is not None:
            patch = {"metadata": {"annotations": {annotation: value}}}
            await self.people.patch(CONFIG_MAP, STATES, name, patch)

    async def until(self, holds: Callable[[], bool], seconds: float, step: float = 1.0) -> bool:
        """Waits until something holds; whether it does."""
        for _ in range(int(seconds / step)):
            if holds():
                return True
            await asyncio.sleep(step)
        return holds()

    async def approve(self) -> None:
        """A person approves the stage `rest` of the rollout in progress."""
        live = self.live()
        name = ((live or {"metadata": {}})["metadata"].get("annotations") or {}).get(keys.TARGET)
        target = self.cluster.server.store.get(CONTROLLER_REVISION, SPACE, str(name or ""))
        if target is not None:
            self.oracle.approved.add(template_id(target["data"]["spec"]["template"]))
            patch = {"metadata": {"annotations": {names.APPROVE: "rest"}}}
            with contextlib.suppress(errors.NotFound):
                await self.people.patch(CONTROLLER_REVISION, SPACE, str(name), patch)

    # --- nodes

    def break_node(self, node: str) -> None:
        """Stops a node at once."""
        if self.cluster.server.store.get(NODE, "", node) is not None:
            self.oracle.dead.add(node)
            self.oracle.broke(node, self.now)
            self.cluster.kill_node(node)

    def boot_node(self, node: str, *, rebooted: bool = True) -> None:
        """Starts a node again."""
        body = self.cluster.server.store.get(NODE, "", node)
        self.oracle.dead.discard(node)
        if body is not None:
            self.oracle.booted(body, self.now)
            (self.cluster.reboot_node if rebooted else self.cluster.revive_node)(node)

    async def repair(self) -> None:
        """Starts every broken node, and uncordons the others."""
        for node in list(self.oracle.nodes.values()):
            if node.name in self.oracle.dead:
                self.boot_node(node.name)
            elif node.well is None:
                await self.people.patch(NODE, "", node.name, {"spec": {"unschedulable": None}})

    def touched(self) -> list[str]:
        """The nodes that run the template of Git, which is not proven yet."""
        wanted = self.history.wanted.tag
        if wanted in self.oracle.proven:
            return []
        return sorted({pod.node for pod in self.oracle.pods.values() if pod.template == wanted})

    def _running(self, node: str) -> str:
        return next((one.template for one in self.oracle.on(node)), "")


def node_spec(number: int) -> NodeSpec:
    """A node in a zone and a pool."""
    labels = {staged_oracle.ZONE: f"zone-{number % 3}", "pool": "ab"[number % 2]}
    return NodeSpec(f"node-{number}", labels)


def _ignore(_: Event) -> None:
    pass
