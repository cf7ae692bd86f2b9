"""The invariants of staged rollouts, judged at each write of the service and every few seconds.

1. Outside of the opened stages no pod runs a template that is not proven, except by the hand of a
   person; no node is moved to a halted template.
2. No healthy pod is replaced because of an edit, and none while the agent is suspended.
3. Every rollout ends, and no good template is halted (also at the end of a world).
4. A return ends within the start of a pod on every well node.
5. No well node is without an agent for longer, and no pinned pod stays unbound
   alone on its node, unless a neighbour has taken the place.
6. A node with another template than that of the shown commit is shown.
7. Only the service that owns the DaemonSet writes its pods.
8. A node is replaced once for a target: the built-in controller makes no pod in between.
9. No template that Git never had is proven, has a commit, or is given to a node by the service; no
   template that fails is proven by a rollout.
10. The agent of a second repository is as Git has it.
11. The revert of a halted rollout changes its agent alone (`staged_reverts`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gitops_ds.core import names
from gitops_ds.core.cluster import Cluster
from gitops_ds.core.daemonset import Counts
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.rollouts import RolloutHalted
from gitops_ds.core.health import HealthState
from gitops_ds.core.objects import (
    CONTROLLER_REVISION,
    DAEMONSET,
    POD,
    Body,
    Resource,
    annotations_of,
)
from gitops_ds.core.rollouts.proven_templates import ProofKind, TemplateProof
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.ownership import field_managers
from gitops_ds.rollouts.state import keys, proofs
from gitops_ds.status import agent_lists, agents
from gitops_ds.testing.simulator.faults import SimulatedRequest
from tests.worlds import staged_oracle
from tests.worlds.staged_git import BAD, GOOD, MUTE, NAME, Content, template_id
from tests.worlds.staged_oracle import HEALED, Oracle, PodView

RETURNED = 75.0  # seconds: a commit is read within 30, a pod ends within 20, starts within 10
BARE = 60.0  # seconds without an agent: two pods that end and start
UNBOUND_ALONE = 15.0  # also while no service runs
SHOWN_AFTER = 30.0


@dataclass
class Situation:
    """What the service can do now. `running`: since then every part of it runs; None if not."""

    running: float | None = None
    suspended: float | None = None  # the agent
    repository_suspended: float | None = None
    corrects_drift: bool = True
    annotated_drift: bool = False
    runs_daemonsets: bool = False  # instead of the DaemonSet controller of Kubernetes


class Judge:
    """Judges one world."""

    def __init__(
        self, oracle: Oracle, situation: Situation, fail: Callable[[int, str], None]
    ) -> None:
        self.oracle, self.situation, self._fail = oracle, situation, fail
        self._alone: dict[str, float] = {}
        self._shown: dict[str, float] = {}
        self._git: dict[str, Content] = {}  # by the identity of its template

    # --- writes

    def request(
        self, writer: str, request: SimulatedRequest, body: Body | None, now: float
    ) -> None:
        """Judges a write before the API server takes it; `body` is the present object."""
        if request.dry_run or request.verb in ("get", "list", "watch", "discover"):
            return
        if writer == staged_oracle.SECOND:
            if request.resource in (POD, CONTROLLER_REVISION):
                self._fail(7, f"the second service sends {request.verb} {request.resource.plural}")
            return
        if writer != staged_oracle.SERVICE or request.resource != POD or body is None:
            return
        if request.verb == "delete":
            self._delete(body, now)

    def _delete(self, body: Body, now: float) -> None:
        oracle, view = self.oracle, self.oracle.pods.get(body["metadata"]["uid"])
        live = oracle.live
        if view is None or live is None or view.terminating or not oracle.staged:
            return
        node = oracle.nodes.get(view.node)
        if node is None or node.well is None or len(oracle.on(view.node)) > 1:
            return
        if live["spec"]["updateStrategy"]["type"] != "OnDelete":
            return
        if self.situation.runs_daemonsets and not oracle.is_placed:
            return  # as the DaemonSet controller of Kubernetes
        targets = oracle.targets(now)
        if view.ready_since is None:
            return
        is_suspended = (live["metadata"].get("annotations") or {}).get(names.SUSPEND) == "true"
        suspended = self.situation.suspended if is_suspended else None
        if suspended is not None and now - suspended > 5:
            self._fail(2, f"deletes the healthy pod of {view.node} of a suspended agent")
        is_waiting = now - oracle.deleted_at < 90  # it is created with the proven template
        # A pod of an edit runs what Git has on a node that the rollout did not open.
        if targets == {view.template} and not (
            is_waiting or view.by_hand or oracle.is_restarted(view)
        ):
            self._fail(2, f"deletes the healthy pod of {view.node}, which runs what Git has")
        if not is_waiting:
            self._judge_taking(view, targets, now)

    def _judge_taking(self, view: PodView, targets: set[str], now: float) -> None:
        """A healthy pod is deleted, to bring its node to a target."""
        oracle = self.oracle
        forward = {one for one in targets if one not in oracle.proven and one != view.template}
        if view.template in oracle.proven and forward and not targets & set(oracle.proven):
            target = sorted(forward)[0]
            oracle.observe_soaks(now)
            if len(forward) == 1:
                self._judge_forward(target, view.node, now)
                oracle.taken.setdefault(target, set()).add(view.node)
                oracle.moving[view.node] = now
        oracle.pending[view.node] = now

    def _judge_forward(self, target: str, node: str, now: float) -> None:
        oracle = self.oracle
        if target in oracle.halted:
            self._fail(1, f"takes {node} to {target}, which was halted")
        shapes = oracle.shapes(target)
        if not shapes:
            return
        self._judge_canary(target, node, f"takes {node} to {target}", now)
        if oracle.is_canary_passed(target):
            self._judge_pool(target, node)
        taken = oracle.taken.get(target, set())
        risky = {
            pod.node
            for pod in oracle.pods.values()
            if pod.template == target
            and not pod.terminating
            and not pod.by_hand
            and pod.node in taken
            and not self._is_soaked(pod, now)
            and oracle.is_well(pod.node)
            and not (pod.heals and pod.ready_since is None)
        }
        risky |= {
            one
            for one, at in oracle.pending.items()
            if now - at < 60 and oracle.is_well(one) and not oracle.is_healing(one, now)
        }
        cap = max(shape.cap(len(oracle.nodes)) for shape in shapes)
        if len(risky | {node}) > cap:
            self._fail(
                1, f"takes {node} to {target}: at risk are {sorted(risky)}, the cap is {cap}"
            )

    def _is_soaked(self, pod: PodView, now: float) -> bool:
        soak = min(shape.rest_soak for shape in self.oracle.shapes(pod.template))
        if pod.node in self.oracle.soaked.get(pod.template, ()):
            return True
        rounded = staged_oracle.ROUNDED
        return pod.ready_since is not None and now - pod.ready_since >= soak - rounded

    def _judge_canary(self, target: str, node: str, what: str, now: float) -> None:
        """Before the canary passed, no more well nodes than it has run the target. Agents that are
        not ready do not count.
        """
        oracle = self.oracle
        is_healing = any(
            one.heals for one in oracle.on(node) if one.template == target
        ) or oracle.is_healing(node, now)
        if oracle.is_opened(target) or is_healing:
            return
        touched = {
            pod.node
            for pod in oracle.pods.values()
            if pod.template == target and not (pod.by_hand or pod.heals or pod.terminating)
        }
        touched |= {
            one
            for one, at in oracle.pending.items()
            if one in oracle.taken.get(target, ()) and now - at < HEALED
        }
        touched = {one for one in touched if self.oracle.is_well(one)} | {node}
        most = max((shape.canary for shape in oracle.shapes(target)), default=len(oracle.nodes))
        if any(not oracle.runs(one, target) for one in touched - {node}):
            most *= 2  # others replace those that fail, at most its size at once
        if len(touched) > most:
            self._fail(
                1, f"{what}, which is not proven, before the canary passed: {sorted(touched)}"
            )

    def _judge_pool(self, target: str, node: str) -> None:
        """After the canary, no node outside of the stage `pool` before one of that stage ran it."""
        oracle = self.oracle
        if not all(shape.pool for shape in oracle.shapes(target)) or oracle.nodes[node].pool == "a":
            return
        count = max(shape.canary for shape in oracle.shapes(target))
        if len(oracle.touched.get(target, set()) - {node}) < count:
            return  # it may be one of the canary, after others were cordoned
        members = {one.name for one in oracle.nodes.values() if one.pool == "a"}
        soaked = oracle.soaked.get(target, set())
        ran = {member for member in members if oracle.runs(member, target) or member in soaked}
        of_canary = min(count, len(members & oracle.passed.get(target, set())))
        if len(members) > of_canary and len(ran) <= of_canary:
            self._fail(1, f"takes {node} to {target}, before any node of the stage pool")

    def created(self, uid: str, writer: str, now: float) -> None:
        """Judges a new pod, also one of the built-in controller."""
        oracle, view = self.oracle, self.oracle.pods[uid]
        self._judge_race(view, writer)
        as_kubernetes = self.situation.runs_daemonsets and (view.by_hand or not oracle.staged)
        if writer == staged_oracle.SERVICE and not (
            as_kubernetes or oracle.is_of_git(view.template)
        ):
            self._fail(9, f"the service gives {view.node} a pod of {view.template}")
        if not oracle.staged or view.template in oracle.proven or view.by_hand:
            return
        what = f"the {writer} creates a pod of {view.template} on {view.node}"
        if view.template in oracle.halted:
            self._fail(1, f"{what}, which was halted")
        elif view.template not in oracle.targets(now):
            self._fail(1, f"{what}, which is neither proven nor in Git")
        elif self.oracle.is_well(view.node):
            oracle.observe_soaks(now)
            self._judge_canary(view.template, view.node, what, now)

    def _judge_race(self, view: PodView, writer: str) -> None:
        """A pod of the built-in controller, on a node whose pod the service deleted for a target;
        a kill in between is one cause of it.
        """
        running, since = self.situation.running, view.since_taken
        if (
            running is None
            or since is None
            or since < running
            or not self.oracle.is_well(view.node)
        ):
            return
        if writer == staged_oracle.BUILT_IN:
            self._fail(8, f"the {writer} creates a pod on {view.node}, which is being updated")

    def wrote(self, resource: Resource, verb: str, body: Body) -> None:
        """Judges an object as the service wrote it: what it states about templates."""
        if verb == "apply" and resource == DAEMONSET and body["metadata"]["name"] == NAME:
            # Without a policy the service states no proof, and leaves one of another writer.
            is_stated = field_managers.is_from_git(body, keys.PROVEN)
            proof = proofs.in_force(annotations_of(body)) if is_stated else None
            if proof is not None:
                self._judge_proof(proof, "the DaemonSet")
        if resource != CONTROLLER_REVISION:
            return
        revision = revisions.revision_of(body)
        if revision is None:
            return
        if (proof := proofs.proof_in(revision)) is not None:
            self._judge_proof(proof, revision.name)
        if names.ROLLOUT in revisions.labels_of(revision):
            commit = str(revisions.annotations_of(revision).get(names.COMMIT) or "")
            self._judge_template(proofs.identity(revision.template), commit, revision.name)

    def state(self, state: DeployerState | None) -> None:
        """Judges what the state of the deployer has as proven."""
        for history in state.templates.values() if state is not None else ():
            for proof in (history.proof, *history.earlier):
                if proof is not None:
                    self._judge_proof(proof, "the state")

    def _judge_proof(self, proof: TemplateProof, where: str) -> None:
        content = self._judge_template(proof.template, proof.commit, where)
        if content and proof.how is ProofKind.ROLLOUT and content.tag.startswith(BAD):
            self._fail(9, f"{where} has {content.tag} as proven by a rollout")

    def _judge_template(self, identity: str, commit: str, where: str) -> Content | None:
        """The content that has the template; it must exist, and be that of the commit."""
        found = self._git.get(identity)
        if found is None:
            self._git |= {
                proofs.identity(content.template): content
                for content in self.oracle.history.contents
            }
            found = self._git.get(identity)
        if found is None:
            self._fail(9, f"{where} has a template that Git never had, with the commit {commit!r}")
            return None
        of_commit = self.oracle.history.content(commit)
        if of_commit is not None and of_commit.tag != found.tag:
            self._fail(9, f"{where} has {found.tag} with a commit of {of_commit.tag}")
        return found

    # --- events

    def halt(self, event: RolloutHalted, now: float) -> None:
        """Judges a halt."""
        content = self.oracle.history.content(event.commit)
        tag = content.tag if content is not None else ""
        is_good = tag.startswith((GOOD, MUTE))
        by_nodes = all("Node" in node.reason for node in event.halt.nodes) and bool(
            event.halt.nodes
        )
        down = [one for one, at in self.oracle.broken.items() if now - at < 900]
        if is_good and not (by_nodes and len(down) > 1):
            self._fail(3, f"halts the good template {tag}: {event.halt.message}")
        if tag and tag not in self.oracle.proven:
            self.oracle.halted.add(tag)
            self.oracle.halted_at = now

    def fail_end(self, reason: str) -> None:
        """A rollout did not end."""
        self._fail(3, f"the rollout does not end: {reason}")

    # --- time

    def step(self, now: float) -> None:
        """Judges what lasts too long."""
        self.oracle.observe_soaks(now)
        running, taken = self.situation.running, set(self.oracle.neighbours.values())
        for node in self.oracle.nodes.values():
            alive = self.oracle.is_placed and running is not None and node.well is not None
            is_bare = alive and node.name not in taken and not self._has_agent(node.name)
            node.bare = self._since(node.bare, is_bare, now)
            node.stray = self._since(node.stray, alive and self._is_stray(node.name), now)
            if node.bare is not None and now - max(node.bare, running or 0, node.well or 0) > BARE:
                self._fail(5, f"{node.name} has no agent for {BARE:g} s")
            since = max(
                node.stray or now,
                running or 0,
                node.well or 0,
                self.oracle.edited_at,
                self.oracle.history.tips[-1][0],
            )
            if node.stray is not None and self._returns() and now - since > RETURNED:
                self._fail(4, f"{node.name} does not return to {self.oracle.in_force}")
        self._judge_unbound(now)

    def _since(self, before: float | None, holds: bool, now: float) -> float | None:
        return (before if before is not None else now) if holds else None

    def _has_agent(self, node: str) -> bool:
        return any(not one.waits for one in self.oracle.on(node))

    def _is_stray(self, node: str) -> bool:
        """Whether the node has pods, of abandoned templates only."""
        oracle, staying = self.oracle, self.oracle.on(node)
        kept = {oracle.history.wanted.tag, *oracle.proven, *oracle.unstaged}
        return bool(staying) and all(one.template not in kept for one in staying)

    def _returns(self) -> bool:
        oracle, now = self.oracle, self.situation
        return (
            oracle.staged
            and oracle.history.wanted.tag == oracle.in_force
            and oracle.blocked_since is None
            and not oracle.restarted_at  # whose annotation hides that a template is proven
            and now.suspended is None
            and now.corrects_drift
            and not now.annotated_drift
        )

    def _judge_unbound(self, now: float) -> None:
        before, self._alone = self._alone, {}
        if self.oracle.live is None:
            return
        taken = set(self.oracle.neighbours.values())
        for uid, pod in self.oracle.pods.items():
            others = [one for one in self.oracle.pods.values() if one.node == pod.node]
            if (
                pod.waits
                and not pod.terminating
                and len(others) == 1
                and self.oracle.is_well(pod.node)
                and pod.node not in taken  # the scheduler has no place for the pod
            ):
                since = self._alone[uid] = before.get(uid, now)
                if now - since > UNBOUND_ALONE:
                    self._fail(5, f"an unbound pod is alone on {pod.node} for {UNBOUND_ALONE:g} s")

    # --- what is shown

    async def show(self, cluster: Cluster, now: float, epoch: float) -> None:
        """Judges the agent as `get`, `status` and `wait` show it."""
        oracle, before, self._shown = self.oracle, self._shown, {}
        situation = self.situation
        if not oracle.staged or situation.suspended is not None or not situation.corrects_drift:
            return
        if oracle.shape is None:  # a tenant added the policy, which counts for nothing
            return
        if situation.annotated_drift or situation.repository_suspended is not None:
            return
        suspects = [one.name for one in oracle.well_nodes() if now - (one.well or 0) > SHOWN_AFTER]
        templates = {suspect: {pod.template for pod in oracle.on(suspect)} for suspect in suspects}
        if len(
            {frozenset(template) for template in templates.values() if template}
        ) <= 1 and not self._differs(templates):
            return
        fleet = await agent_lists.list_agents(cluster, "gitops-ds", epoch + now)
        agent = next((one for one in fleet if one.key.name == NAME), None)
        content = oracle.history.content(agents.commit_of(agent)) if agent is not None else None
        if agent is None or content is None:
            return
        counts = agent.seen.daemonset.counts or Counts()
        waits = oracle.shape is not None and oracle.shape.finish_first  # for the rollout before
        up_to_date = agent.counts.updated >= counts.desired and not waits
        is_healthy = agent.health.state is HealthState.HEALTHY
        for node, those in templates.items():
            if those and content.tag not in those and (is_healthy or up_to_date):
                since = self._shown[node] = before.get(node, now)
                if now - since >= SHOWN_AFTER:
                    shown = f"{agent.health.state.value}, {agent.counts.updated}/{counts.desired}"
                    self._fail(
                        6, f"shows {shown} of {content.tag}, while {node} runs {sorted(those)}"
                    )

    def _differs(self, templates: dict[str, set[str]]) -> bool:
        wanted = self.oracle.history.wanted.tag
        return any(those and wanted not in those for those in templates.values())


def undone(oracle: Oracle) -> str:
    """Why the last rollout is not done; empty if it is."""
    live, wanted = oracle.live, oracle.history.wanted.tag
    if live is None:
        return "there is no DaemonSet"
    if template_id(live["spec"]["template"]) != wanted:
        return f"the DaemonSet has {template_id(live['spec']['template'])}, Git has {wanted}"
    if keys.TARGET in (live["metadata"].get("annotations") or {}):
        return "the DaemonSet still has a target"
    missing = [
        node.name
        for node in oracle.well_nodes()
        if not oracle.runs(node.name, wanted) and (wanted, node.name) not in oracle.faulty
    ]
    return f"{', '.join(missing)} do not run {wanted}" if missing else ""
