"""What a world with staged rollouts knows by itself: pods and nodes, who wrote what, and which
templates are proven.

A template is proven if it was in force at the first creation or when the policy was added, or if a
rollout completed it: every well node ran it for the soak. It is independent of the records of the
service.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.cluster import EventType
from gitops_ds.core.objects import DAEMONSET, NODE, POD, Body, Resource, annotations_of
from gitops_ds.kube.apimachinery import pods
from gitops_ds.rollouts.state import halted_templates, keys
from gitops_ds.testing.simulator.store import StoredChange
from tests.worlds.staged_git import NAME, SPACE, Shape, StagedHistory, template_id

PEOPLE, SERVICE, BUILT_IN, SECOND = "people", "service", "built-in controller", "second service"
TENANT = "tenant"  # who may write in the namespace of the agent, but no ControllerRevisions
HANDS = (PEOPLE, TENANT)
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
ZONE = "topology.kubernetes.io/zone"
LAG = 60.0  # seconds until the service has seen a commit, and its last writes are done
HEALED = 45.0  # seconds without a ready agent, more than the end and the start of a pod
NOTED = 5.0  # seconds until the deployer has noted a halt in its state
ROUNDED = 2.0  # seconds: times of Kubernetes are whole seconds


@dataclass(slots=True)
class PodView:
    """One pod of the agent. `by_hand`: it has its template by the hand of a person."""

    name: str
    node: str
    template: str
    created: float
    by_hand: bool
    ready_since: float | None = None
    waits: bool = False
    since_taken: float | None = None  # when its node was taken, if no pod came since
    terminating: bool = False
    heals: bool = False  # it replaces an agent that was not ready
    restarted: str | None = None  # the annotation of the last `kubectl rollout restart`


@dataclass(slots=True)
class NodeView:
    """One node; `well` since then, None while it is broken."""

    name: str
    zone: str
    pool: str
    well: float | None
    bare: float | None = None  # without an agent since then
    stray: float | None = None  # with another template than Git's since then


class Hand(msgspec.Struct, frozen=True):
    """The template that a person gave the DaemonSet, and until when new pods may have it."""

    template: str
    until: float | None = None


@dataclass
class Oracle:
    """The world's own knowledge; it must see every change of the store, with its writer."""

    history: StagedHistory
    pods: dict[str, PodView] = field(default_factory=dict)
    nodes: dict[str, NodeView] = field(default_factory=dict)
    neighbours: dict[str, str] = field(default_factory=dict)  # nodes of other pods, by their uid
    dead: set[str] = field(default_factory=set)  # kubelets that do nothing
    live: Body | None = None
    proven: dict[str, str] = field(default_factory=dict)
    in_force: str = ""
    hands: list[Hand] = field(default_factory=list)
    passed: dict[str, set[str]] = field(default_factory=dict)  # the canary of a template, once over
    halted: set[str] = field(default_factory=set)
    halted_at: float = -1000.0  # the last halt
    faulty: set[tuple[str, str]] = field(default_factory=set)  # template and node
    approved: set[str] = field(default_factory=set)
    broken: dict[str, float] = field(default_factory=dict)  # when a fault stopped a node
    soaked: dict[str, set[str]] = field(default_factory=dict)  # nodes by template
    taken: dict[str, set[str]] = field(default_factory=dict)  # with a ready pod before
    # node -> when the service deleted a healthy pod for a target
    moving: dict[str, float] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)  # node -> when the service deleted
    last_ready: dict[str, float] = field(default_factory=dict)  # when a node had a ready pod
    ended: list[tuple[float, float]] = field(default_factory=list)  # blocks: since, until
    deleted_at: float = -1000.0  # the last delete of the DaemonSet
    restarted_at: float = 0.0  # the last `kubectl rollout restart`
    edited_at: float = 0.0  # the last write of a person to DaemonSet, revisions or requests
    # why the deployer does not follow the tip, and since when
    blocked: dict[str, float] = field(default_factory=dict)
    unstaged: set[str] = field(default_factory=set)  # templates that were in force without a policy
    touched: dict[str, set[str]] = field(default_factory=dict)  # nodes that had a pod, by template
    has_series: Any = None
    hashes: dict[str, str] = field(default_factory=dict)  # templates by the hash of their pods
    has_policy: bool = False  # by the last write of others than the tenant
    stripped: bool = False  # the tenant removed the policy from the DaemonSet

    @property
    def blocked_since(self) -> float | None:
        """Since when the deployer does not follow the tip; None if it does."""
        return min(self.blocked.values(), default=None)

    def copied(self) -> dict[str, Any]:
        """What follows from the objects of the cluster, for a backup of them."""
        names = ("proven", "in_force", "hands", "passed", "halted", "approved", "soaked", "taken")
        kept = (*names, "unstaged", "touched", "restarted_at", "deleted_at")
        return {name: copy.deepcopy(getattr(self, name)) for name in kept}

    def restored(self, known: dict[str, Any], since: float, now: float) -> None:
        """The objects are those of a backup; the deployer has to follow Git again from there."""
        for name, value in known.items():
            setattr(self, name, value)
        self.pending = {}
        self.ended.append((since, now))

    # --- what changes

    def saw(self, resource: Resource, change: StoredChange, writer: str, now: float) -> None:
        """Handles one change."""
        if resource == POD:
            self._saw_pod(change, writer, now)
        elif resource == NODE and change.type is EventType.DELETED:
            self.nodes.pop(change.body["metadata"]["name"], None)
        elif resource == NODE:
            self._saw_node(change.body, now)
        elif resource == DAEMONSET and change.body["metadata"]["name"] == NAME:
            self._saw_daemonset(change, writer, now)

    def unblock(self, reason: str, now: float) -> None:
        """The deployer follows the tip again."""
        if reason in self.blocked:
            self.ended.append((self.blocked.pop(reason), now))

    def _last_ready(self, node: str, now: float) -> float:
        is_ready = any(
            pod.node == node and pod.ready_since is not None for pod in self.pods.values()
        )
        return now if is_ready else self.last_ready.get(node, -HEALED)

    def is_healing(self, node: str, now: float) -> bool:
        """Whether the agent of a node is broken, so that a new pod costs nothing."""
        return now - self._last_ready(node, now) > HEALED

    def _saw_pod(self, change: StoredChange, writer: str, now: float) -> None:
        body = change.body
        metadata, spec = body["metadata"], body["spec"]
        if metadata.get("namespace") != SPACE:
            return
        uid = metadata["uid"]
        if (metadata.get("labels") or {}).get("app") != "agent":
            is_there = change.type is not EventType.DELETED and spec.get("nodeName")
            self.neighbours.pop(uid, None)
            if is_there:
                self.neighbours[uid] = spec["nodeName"]
            return
        view = self.pods.get(uid)
        if view is not None and view.ready_since is not None:
            self.last_ready[view.node] = now
        if change.type is EventType.DELETED:
            self.pods.pop(uid, None)
            return
        if view is None:
            node = spec.get("nodeName") or pods.target(spec)
            template = self._template_of(body, writer)
            view = self.pods[uid] = PodView(
                metadata["name"],
                node,
                template,
                now,
                writer == TENANT or self.is_of_an_edit(template, now),
            )
            self.touched.setdefault(template, set()).add(node)
            view.heals = self.is_healing(node, now)
            view.restarted = restart_of(metadata)
            self.pending.pop(node, None)
            view.since_taken = self.moving.pop(node, None)
        view.waits = "nodeName" not in spec and names.ROLLOUT in metadata["labels"]
        view.terminating = "deletionTimestamp" in metadata
        status = body.get("status") or {}
        ready = any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in status.get("conditions") or ()
        )
        view.ready_since = (
            (view.ready_since if view.ready_since is not None else now) if ready else None
        )

    def _template_of(self, body: Body, writer: str) -> str:
        """What a pod runs. One of the tenant is what its hash states: who may create pods in the
        namespace of the agent can make one that looks like it (docs/threat-model.md).
        """
        hash = str((body["metadata"].get("labels") or {}).get(names.REVISION_HASH) or "")
        if writer == TENANT:
            return self.hashes.get(hash, template_id(body))
        template = self.hashes[hash] = template_id(body)
        return template

    def _saw_node(self, body: Body, now: float) -> None:
        name = body["metadata"]["name"]
        labels, spec = body["metadata"]["labels"], body.get("spec") or {}
        conditions = (body.get("status") or {}).get("conditions") or ()
        ready = any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in conditions
        )
        well = ready and not spec.get("taints") and not spec.get("unschedulable")
        view = self.nodes.get(name)
        if view is None:
            zone = labels.get(ZONE, "")
            view = self.nodes[name] = NodeView(name, zone, labels.get("pool", ""), None)
        if not well or name in self.dead:
            view.well = None
        elif view.well is None:
            view.well = now

    def _saw_daemonset(self, change: StoredChange, writer: str, now: float) -> None:
        before, self.live = self.live, change.body
        if change.type is EventType.DELETED:
            self.live, self.deleted_at = None, now
            if now - self.halted_at < NOTED:
                self.halted.clear()
            return
        new = template_id(change.body["spec"]["template"])
        old = template_id(before["spec"]["template"]) if before else ""
        if new != old:
            self.hands = [
                hand if hand.until is not None else Hand(hand.template, now + 5.0)
                for hand in self.hands
            ]
            if writer in HANDS:
                self.hands.append(Hand(new))
        if writer == TENANT:
            self.edited_at = now
            self._released(before, change.body)
            self.stripped = self.stripped or (self.has_policy and not is_staged(change.body))
            return
        was_stripped, self.stripped = self.stripped, self.stripped and writer != SERVICE
        if was_stripped and (writer != SERVICE or is_staged(change.body)):
            return
        self.has_policy = is_staged(change.body)
        if not is_staged(change.body):
            if writer not in HANDS:
                self.in_force = new
                self.unstaged.add(new)
            self.halted.clear()
        elif before is None and not self.in_force:
            self._proved(new, "first")
        elif before is not None and not is_staged(before):
            if self.is_of_git(old):
                self.proven[old] = "adopted"
            self._proved(self.in_force or old, "adopted")
        elif new != old and writer == SERVICE and self._is_mostly_done(new):
            self.proven.setdefault(new, "rollout")
            if self.shape is not None and not self.shape.late:
                self.in_force = new

    def _released(self, before: Body | None, after: Body) -> None:
        """A halted template that the tenant removes from the annotation is released: that is what
        `gitops-ds release` writes, with the same rights (docs/threat-model.md).
        """
        left = {one.hash for one in halted_templates.parse(annotations_of(after))}
        for one in halted_templates.parse(annotations_of(before or {})):
            content = self.history.content(one.commit)
            if one.hash not in left and content is not None:
                self.halted.discard(content.tag)

    def _proved(self, template: str, how: str) -> None:
        self.proven.setdefault(template, how)
        self.in_force = template

    # --- what holds

    def is_restarted(self, view: PodView) -> bool:
        """Whether a restart replaces the pod."""
        wanted = restart_of(self.live["spec"]["template"]["metadata"]) if self.live else None
        return view.created < self.restarted_at or wanted not in (None, view.restarted)

    @property
    def staged(self) -> bool:
        """Whether the DaemonSet has a policy."""
        return self.live is not None and is_staged(self.live)

    @property
    def is_placed(self) -> bool:
        """Whether the DaemonSet exists, and its template has the nodes of Git."""
        return self.live is not None and not self.live["spec"]["template"]["spec"].get(
            "nodeSelector"
        )

    @property
    def shape(self) -> Shape | None:
        """The policy of the tip."""
        return self.history.wanted.shape

    def is_of_git(self, template: str) -> bool:
        """Whether a commit has the template."""
        return any(content.tag == template for content in self.history.contents)

    def shapes(self, template: str) -> list[Shape]:
        """The policies since Git has the template."""
        since = next(
            (at for at, content in self.history.tips if content.tag == template),
            self.history.tips[0][0],
        )
        return [one.shape for one in self.history.since(since - 1) if one.shape is not None]

    def is_of_an_edit(self, template: str, now: float) -> bool:
        """Whether a new pod has this template by the hand of a person."""
        return any(
            hand.template == template and (hand.until is None or hand.until >= now)
            for hand in self.hands
        )

    def targets(self, now: float) -> set[str]:
        """The templates that Git has, or had until the service saw the last commit."""
        horizon = now - LAG
        since = [*self.blocked.values(), *(one for one, until in self.ended if now - until < LAG)]
        horizon = min([horizon, *(one - LAG for one in since)])
        shapes = [one.shape for one in self.history.since(horizon)]
        if any(shape is not None and shape.finish_first for shape in shapes):
            horizon -= 1500.0
        return {one.tag for one in self.history.since(horizon)}

    def on(self, node: str) -> list[PodView]:
        """The pods of a node that stay."""
        return [pod for pod in self.pods.values() if pod.node == node and not pod.terminating]

    def well_nodes(self) -> Iterator[NodeView]:
        """The nodes that are well."""
        return (
            self.nodes[name] for name in sorted(self.nodes) if self.nodes[name].well is not None
        )

    def is_well(self, node: str) -> bool:
        """Whether the node exists and is well."""
        view = self.nodes.get(node)
        return view is not None and view.well is not None

    def broke(self, node: str, now: float) -> None:
        """A fault stopped the node."""
        self.broken[node] = now
        self.nodes[node].well = None

    def booted(self, body: Body, now: float) -> None:
        """The node starts again."""
        self.dead.discard(body["metadata"]["name"])
        self._saw_node(body, now)

    def runs(self, node: str, template: str) -> bool:
        """Whether a ready pod of the template is on the node."""
        return any(
            one.template == template and one.ready_since is not None for one in self.on(node)
        )

    # --- proof

    def observe_soaks(self, now: float) -> None:
        """Records the nodes that ran a template for the soak, and completed rollouts."""
        for pod in self.pods.values():
            if pod.ready_since is None or pod.terminating or pod.template in self.proven:
                continue
            shapes = self.shapes(pod.template)
            if not shapes or now - pod.ready_since < min(s.soak for s in shapes) - ROUNDED:
                continue
            is_measured = all(shape.gate for shape in shapes)
            if not is_measured or self.has_series is None or self.has_series(pod.node):
                self.soaked.setdefault(pod.template, set()).add(pod.node)
        if self.staged:
            self._observe_completion(now)
            self.is_canary_passed(self.history.wanted.tag)

    def _observe_completion(self, now: float) -> None:
        wanted = self.history.wanted.tag
        if wanted == self.in_force:
            return
        shapes = self.shapes(wanted)
        soak = 0.0 if wanted in self.proven else min((s.rest_soak for s in shapes), default=0)
        nodes = list(self.well_nodes())
        done = all(
            any(
                pod.template == wanted
                and pod.ready_since is not None
                and now - pod.ready_since >= soak - ROUNDED
                for pod in self.on(node.name)
            )
            for node in nodes
        )
        if nodes and done and self.is_canary_passed(wanted):
            self._proved(wanted, "rollout")

    def is_canary_passed(self, template: str) -> bool:
        """Whether as many nodes as the canary has ran the template for its soak."""
        if template in self.proven or template in self.passed:
            return True
        count = min((shape.canary for shape in self.shapes(template)), default=0)
        taken = self.neighbours.values()
        touched = self.touched.get(template, ())
        lost = sum(1 for one in touched if not self.is_well(one) or one in taken)
        needed = min(max(1, count - lost), len(self.nodes))
        if len(self.soaked.get(template, ())) < needed:
            return False
        self.passed.setdefault(template, set(self.soaked.get(template, ())))
        return True

    def is_opened(self, template: str) -> bool:
        """Whether nodes beyond the canary may run the template."""
        waits = all(shape.approval and not shape.pool for shape in self.shapes(template))
        is_approved = not waits or template in self.approved
        return template in self.proven or (is_approved and self.is_canary_passed(template))

    def _is_mostly_done(self, template: str) -> bool:
        running = [node for node in self.nodes if self.runs(node, template)]
        return self.is_canary_passed(template) and 2 * len(running) > len(self.nodes)


def is_staged(body: Body) -> bool:
    """Whether the DaemonSet has a policy that can be read."""
    text = str((body["metadata"].get("annotations") or {}).get(keys.ROLLOUT_POLICY) or "")
    return bool(text) and "future" not in text


def restart_of(metadata: Body) -> str | None:
    """The annotation of `kubectl rollout restart` in a template or a pod."""
    return (metadata.get("annotations") or {}).get(RESTARTED_AT)
