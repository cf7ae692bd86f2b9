"""One world: the service on a simulated cluster in virtual time, and all its events, drawn from a
seed.

The service is the DaemonSet controller with full powers and a deployer that prunes. `events` is the
table of what may happen. While a world lasts, each request of the service is judged before the API
server takes it; when all faults are over and a while has passed, everything must be in sync with
Git, and the service must be quiet.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gitops_ds.controller.controller import Controller
from gitops_ds.core import names
from gitops_ds.core.decision import Powers
from gitops_ds.core.events import base, deployer
from gitops_ds.core.events.base import Event
from gitops_ds.core.objects import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DAEMONSET,
    NODE,
    POD,
    Body,
    Key,
    key_of,
)
from gitops_ds.core.values import replace
from gitops_ds.deploy import loop as deployer_loop
from gitops_ds.deploy import revision_selector
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.kube.apimachinery import pods, revisions
from gitops_ds.ownership.options import ApplyOptions, Guards
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import NodeSpec, virtual_time
from gitops_ds.testing.simulator.faults import Faults, RequestFault, SimulatedRequest
from tests.deploy.test_loop import History
from tests.simulator.setup import strict

SPACE, NAME = "tools", "agent"
SCHEDULE = 30.0  # seconds between two looks at Git
# of the controller, or of the deployer: a loop without back-off sends thousands
REQUESTS_A_MINUTE = 400
QUIET_REQUESTS_A_MINUTE = 30
# seconds: two comparisons of the deployer, and the longest back-off of anything
SETTLED_AFTER = 1400.0
OLDEST_PICTURE = 660.0  # seconds, as in docs/promises.md
# seconds without a change of DaemonSet, revisions or nodes, after which a healthy pod has to stay
AT_REST = 120.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """The content of the tip of the branch."""

    tag: int = 1
    selector: str = ""
    namespace: bool = True
    settings: bool = True

    def text(self) -> str:
        """The commit's only file."""
        selector = f"nodeSelector: {{role: {self.selector}}}" if self.selector else ""
        documents = [DAEMONSET_TEXT.format(tag=self.tag, selector=selector)]
        if self.namespace:
            documents.append(f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {SPACE}}}\n")
        if self.settings:
            documents.append(
                f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings, namespace: "
                f"{SPACE}}}\ndata: {{a: b}}\n"
            )
        return "---\n".join(documents)


DAEMONSET_TEXT = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: agent, namespace: tools}}
spec:
  revisionHistoryLimit: 2
  selector: {{matchLabels: {{app: agent}}}}
  template:
    metadata: {{labels: {{app: agent}}}}
    spec:
      {selector}
      containers: [{{name: agent, image: "agent:{tag}"}}]
"""


@dataclass
class World:
    """A cluster, the service on it, and what was found wrong."""

    chance: random.Random
    cluster: simulator.SimulatedCluster
    history: History = field(default_factory=History)
    wanted: Wanted = field(default_factory=Wanted)
    story: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    failed: asyncio.Event = field(default_factory=asyncio.Event)
    windows: list[Faults] = field(default_factory=list)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    controller: Controller | None = None
    loop: deployer_loop.Loop | None = None
    scheduled_looks: int = 0
    git_away: bool = False
    restarted: bool = False
    is_late: bool = False
    restored_at: float = -math.inf
    kept: set[str] = field(default_factory=set)
    changed_at: float = 0.0
    blind_since: float | None = None
    wrote: set[Key] = field(default_factory=set)
    sent: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def disturbed(self) -> bool:
        """Whether a fault is at work just now."""
        return bool(self.windows) or self.is_late or self.history.unreachable

    @property
    def is_calm(self) -> bool:
        """Whether DaemonSet, revisions and nodes have not changed for a while."""
        return self.now - self.changed_at > AT_REST

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return asyncio.get_running_loop().time()

    @property
    def people(self) -> simulator.Client:
        """A client that no fault concerns."""
        return self._people

    def __post_init__(self) -> None:
        self._people = self.cluster.client("kubectl-edit")
        self._clients: list[simulator.Client] = []

    # --- the service

    def start(self) -> None:
        """Starts a process of the service."""
        self._clients = [self.cluster.client() for _ in range(2)]
        for name, client in zip(("controller", "deployer"), self._clients, strict=True):
            client.faults = self._judge(name)
        chance = random.Random(self.chance.random()).random
        clock = virtual_time.clock()
        self.controller = Controller(
            self._clients[0], Powers.FULL, strict(self._check_event), clock=clock, chance=chance
        )
        place = DeployTarget(self._clients[1], "gitops-ds", "test", "memory")
        source = revision_selector.RevisionSource(
            self.history.tip,
            self.history.snapshot,
            self.history.movement,
            revision_selector.prepare_directly(prepare.prepare),
        )
        options = ApplyOptions(Guards(prune=True), patience=0.0)
        self.loop = deployer_loop.Loop(
            source, place, options, self._check_event, deployer_loop.LoopTiming(5.0, clock, chance)
        )
        self.tasks = [
            asyncio.create_task(work)
            for work in (self.controller.run(), self.loop.run(), self._schedule(self.loop))
        ]

    async def kill(self) -> None:
        """Ends the process at once."""
        for task in self.tasks:
            task.cancel()
        for result in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(result, Exception):
                self.fail(f"the service ended by itself: {result!r}")
        for client in self._clients:
            client.cut_watches()
        self.tasks = []

    async def _schedule(self, loop: deployer_loop.Loop) -> None:
        while True:
            self.scheduled_looks += 1
            loop.request()
            await asyncio.sleep(SCHEDULE)

    @property
    def clients(self) -> list[simulator.Client]:
        """Those of the service: of its controller and of its deployer."""
        return self._clients

    # --- what befalls it

    def push(self, **changes: Any) -> None:
        """A commit."""
        self.wanted = replace(self.wanted, **changes)
        self.history.push(self.wanted.text())
        self.changed_at = self.now

    def record(self, text: str) -> None:
        """Adds a line to the story."""
        self.story.append(f"{self.now:6.0f} s: {text}")

    def fail(self, wrong: str) -> None:
        """Records what is wrong, which ends the world."""
        self.wrong.append(wrong)
        self.failed.set()

    @contextlib.contextmanager
    def fault(self, answer: Faults) -> Iterator[None]:
        """A fault that lasts as long as the block."""
        self.windows.append(answer)
        try:
            yield
        finally:
            self.windows.remove(answer)

    # --- what is judged at every request

    def _judge(self, name: str) -> Faults:
        def judge(request: SimulatedRequest) -> RequestFault | None:
            self._count_request(name, request)
            for window in self.windows:
                if (fault := window(request)) is not None:
                    return fault
            if request.verb == "delete" and request.resource is not None:
                self._judge_delete(request)
            if (
                request.verb in ("apply", "create")
                and request.resource is not None
                and not request.dry_run
            ):
                self.wrote.add(
                    Key(
                        request.resource.group,
                        request.resource.kind,
                        request.namespace,
                        request.name,
                    )
                )
            return None

        return judge

    def _count_request(self, name: str, request: SimulatedRequest) -> None:
        """No minute has more requests than a loop with back-off sends."""
        minute = int(self.now // 60)
        self.sent[name, minute] += request.verb != "watch"
        if self.sent[name, minute] > REQUESTS_A_MINUTE:
            self.fail(f"the {name} sent {REQUESTS_A_MINUTE} requests in minute {minute}")

    def _judge_delete(self, request: SimulatedRequest) -> None:
        assert request.resource is not None
        body = self.cluster.server.store.get(request.resource, request.namespace, request.name)
        if body is None:
            return
        if request.resource == POD:
            self._judge_pod(body)
        elif request.resource != CONTROLLER_REVISION and key_of(body) not in self.wrote:
            self.fail(f"deletes {key_of(body)}, which it never wrote")

    def _judge_pod(self, body: Body) -> None:
        pod, owner = pods.pod_of(body), self.live()
        if pod.uid in self.kept:
            self.fail(f"deletes the pod of {pod.node} for an orphan that could not be adopted")
        if self.now - self.restored_at < AT_REST or self.is_late:
            return  # it saw the pods as they were before
        if pod.owner is None or pod.owner.kind != "DaemonSet" or pod.owner.name != NAME:
            self.fail(f"deletes the pod {pod.name}, which is not its own")
            return
        if not self.is_calm or self.windows or owner is None or pod.terminating or not pod.ready:
            return
        node = self.cluster.server.store.get(NODE, "", pod.node)
        others = [
            one
            for one in self.own_pods()
            if one.node == pod.node and one.uid != pod.uid and not one.terminating
        ]
        image = body["spec"]["containers"][0]["image"]
        if (
            node is not None
            and not others
            and image == image_of(owner)
            and not (node.get("spec") or {}).get("taints")
        ):
            self.fail(f"deletes the healthy pod of {pod.node}, the only one there")

    def _check_event(self, event: Event) -> None:
        if (
            isinstance(event, deployer.Unchanged | deployer.Reconciled)
            and self.blind_since is not None
        ):
            age = self.now - self.blind_since
            if age > OLDEST_PICTURE + 60:
                self.fail(f"reports on a picture that is {age:.0f} s old: {type(event).__name__}")
        if isinstance(event, base.Decided):
            reasons = [action.why for action in event.decision.actions]
            if not all(reasons):
                self.fail("an action has no reason")

    # --- observations

    def live(self) -> Body | None:
        """The DaemonSet."""
        return self.cluster.server.store.get(DAEMONSET, SPACE, NAME)

    def own_pods(self) -> list[Any]:
        """The pods that the DaemonSet owns."""
        owner = self.live()
        uid = owner["metadata"]["uid"] if owner else ""
        all_pods = [pods.pod_of(body) for body in self.cluster.server.store.all(POD)]
        return [pod for pod in all_pods if pod.owner is not None and pod.owner.uid == uid]

    def expected_image(self) -> str:
        """The image that the tip wants."""
        return f"agent:{self.wanted.tag}"

    def check_agents(self, when: str, *, rolled_out: bool = True) -> None:
        """The DaemonSet is in sync with Git, and each node has a ready pod of it, but for one
        during a rollout.
        """
        owner = self.live()
        if owner is None:
            self.fail(f"{when}: there is no DaemonSet")
            return
        if image_of(owner) != self.expected_image():
            self.fail(f"{when}: the image is {image_of(owner)}, Git has {self.expected_image()}")
            return
        nodes = {body["metadata"]["name"] for body in self.cluster.server.store.all(NODE)}
        running = Counter(pod.node for pod in self.own_pods() if pod.ready and not pod.terminating)
        missing = Counter(nodes) - running
        if running - Counter(nodes) or missing.total() > (0 if rolled_out else 1):
            self.fail(f"{when}: of the nodes {sorted(nodes)} these have agents: {dict(running)}")

    def check_end(self) -> None:
        """All is as wanted, and nothing is in progress."""
        self.check_agents("at the end")
        store = self.cluster.server.store
        if self.wanted.settings and store.get(CONFIG_MAP, SPACE, "settings") is None:
            self.fail("at the end: the ConfigMap is missing")
        if not self.wanted.settings and store.get(CONFIG_MAP, SPACE, "settings") is not None:
            self.fail("at the end: the ConfigMap that left Git is still there")
        if (owner := self.live()) is not None:
            self._check_status(owner)
            self.check_newest_revision("at the end", owner)
        minute = int(self.now // 60) - 1
        for name in ("controller", "deployer"):
            if (number := self.sent[name, minute]) > QUIET_REQUESTS_A_MINUTE:
                self.fail(f"at the end: the {name} still sends {number} requests a minute")

    def _check_status(self, owner: Body) -> None:
        nodes, status = len(self.cluster.server.store.all(NODE)), owner.get("status") or {}
        for counter in (
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
        ):
            if status.get(counter, 0) != nodes:
                self.fail(f"at the end: {counter} is {status.get(counter, 0)} on {nodes} nodes")

    def check_newest_revision(self, when: str, owner: Body) -> None:
        """The newest revision has the template, and every pod its hash."""
        own = [
            body
            for body in self.cluster.server.store.all(CONTROLLER_REVISION)
            if any(
                ref["uid"] == owner["metadata"]["uid"]
                for ref in body["metadata"].get("ownerReferences") or ()
            )
        ]
        newest = max(own, key=lambda body: int(body["revision"]), default=None)
        template = revisions.template_of(newest) if newest is not None else None
        if (
            newest is None
            or template is None
            or not revisions.same_template(template, owner["spec"]["template"])
        ):
            self.fail(f"{when}: the newest revision is not the template's")
            return
        hash = newest["metadata"]["labels"][names.REVISION_HASH]
        stray = [pod.name for pod in self.own_pods() if pod.hash != hash]
        if stray:
            self.fail(f"{when}: pods {stray} have the hash of another revision")

    def check_looks(self) -> None:
        """Git was read on schedule, and a few times for each event."""
        allowed = self.scheduled_looks + 4 * len(self.story) + 10
        if not self.git_away and self.history.looks > allowed:
            self.fail(
                f"{self.history.looks} looks at Git, of which {self.scheduled_looks} were scheduled"
            )


def image_of(body: Body) -> str:
    """The image of a workload's only container."""
    return str(body["spec"]["template"]["spec"]["containers"][0]["image"])


Disturbance = Callable[[World], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened in a world, and what was wrong with it."""

    seed: int
    story: tuple[str, ...]
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"world {self.seed}:", *self.story, "wrong:", *self.wrong[:10]]
        return "\n  ".join(lines)


def play(seed: int, table: dict[str, Disturbance]) -> Outcome:
    """The world of that seed, with events from the table."""
    return virtual_time.run(_play(seed, table))


async def _play(seed: int, table: dict[str, Disturbance]) -> Outcome:
    chance = random.Random(seed)
    async with simulator.SimulatedCluster(
        seed=seed, habits=simulator.Habits(latency=chance.choice((0.0, 0.01, 0.2)))
    ) as cluster:
        cluster.add_nodes(
            NodeSpec(f"node-{number}", {"role": "worker"}) for number in range(chance.randint(2, 3))
        )
        world = World(chance, cluster)
        whole = asyncio.create_task(_whole(world, chance, table))
        failure = asyncio.create_task(world.failed.wait())
        await asyncio.wait((whole, failure), return_when=asyncio.FIRST_COMPLETED)
        failure.cancel()
        if whole.done():
            await whole
        else:
            whole.cancel()
        await world.kill()
        return Outcome(seed, tuple(world.story), tuple(dict.fromkeys(world.wrong)))


async def _whole(world: World, chance: random.Random, table: dict[str, Disturbance]) -> None:
    """All that happens in a world, if nothing is wrong before its end."""
    world.push()
    world.start()
    await asyncio.sleep(60)
    async with asyncio.TaskGroup() as events:
        for one in _drawn(chance, table):
            events.create_task(_happens(world, *one))
    world.record("all is over")
    world.push(tag=world.wanted.tag + 1, selector="", namespace=True)
    await asyncio.sleep(SETTLED_AFTER)
    world.check_end()
    world.check_looks()


def _drawn(
    chance: random.Random, table: dict[str, Disturbance]
) -> list[tuple[float, str, Disturbance]]:
    """Some events, and the seconds until each begins; none twice."""
    chosen = chance.sample(sorted(table), min(len(table), chance.randint(1, 5)))
    return [(chance.uniform(0, 600), name, table[name]) for name in chosen]


async def _happens(world: World, seconds: float, name: str, event: Disturbance) -> None:
    await asyncio.sleep(seconds)
    world.record(name)
    await event(world)
