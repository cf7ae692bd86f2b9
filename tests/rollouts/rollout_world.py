"""A world with a staged rollout: the pinned pods, a controller that does not know about them, and a
deployer.

The controller of the world is our own without a policy, which the conformance tests compare with
the built-in one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.proven_templates import TemplateProof
from gitops_ds.core.rollouts.staged_rollout import StageHold, StageInputs, StagesDecision
from gitops_ds.kube.apimachinery import daemonsets, revisions
from gitops_ds.rollouts.decisions import pinned_pods
from gitops_ds.rollouts.decisions.pinned_pods import StagedDecision
from gitops_ds.rollouts.state import halted_templates, keys, proofs, target_revisions
from gitops_ds.rollouts.state.daemonset_statements import RolloutPhase
from tests.daemonset.world import World, daemonset, node, pod_of

SECOND = "agent:2"
both = pytest.mark.parametrize(
    "owned", [False, True], ids=["beside the controller", "as the controller"]
)


def zoned(number: int, zones: int = 3) -> list[dict[str, Any]]:
    """Nodes in zones, one after the other."""
    labels = [{"topology.kubernetes.io/zone": f"zone-{i % zones}"} for i in range(number)]
    return [node(f"node-{i:03}", labels[i]) for i in range(number)]


class RolloutWorld(World):
    """A DaemonSet that runs its first template on all nodes, and a policy."""

    def __init__(
        self, policy: dict[str, Any], nodes: list[dict[str, Any]] | int, *, owned: bool = False
    ) -> None:
        """`owned`: the controller that paces is the DaemonSet controller too."""
        body = daemonset(updateStrategy={"type": "OnDelete"})
        super().__init__(body, zoned(nodes) if isinstance(nodes, int) else nodes)
        self.policy = rollout_policy.decode(policy)
        self.decide = pinned_pods.decide_owned if owned else pinned_pods.decide_pinned
        self.owned = owned
        self.settle()
        self.prove("0", at=self.now)
        self.now += 10_000.0
        self.most_at_risk = 0
        self.last: StagedDecision | None = None
        self.busy: frozenset[str] = frozenset()
        self.halted_elsewhere = ""

    def held_after(self, seconds: float) -> tuple[float, StageHold]:
        """When the rollout began, and its hold that many seconds later."""
        began = self.stages.record.began
        self.now = began + seconds
        self.one_turn()
        hold = self.stages.hold
        assert hold is not None
        return began, hold

    def prove(self, commit: str, at: float) -> None:
        """The deployer's proof of the DaemonSet's template, which is in force from now on."""
        proof = TemplateProof(proofs.identity(self.body["spec"]["template"]), commit, at, since=at)
        self.body = copy.deepcopy(self.body)
        stated = {keys.PROVEN: proofs.encoded(proof), keys.PHASE: RolloutPhase.COMPLETE}
        self.body["metadata"].setdefault("annotations", {}).update(stated)

    def commit(self, image: str) -> None:
        """The deployer's writes for a commit with another image: the target revision and its
        name.
        """
        template = copy.deepcopy(self.body["spec"]["template"])
        template["spec"]["containers"][0]["image"] = image
        metadata = self.body["metadata"]
        if template == self.body["spec"]["template"]:
            metadata["annotations"].pop(keys.TARGET, None)
            metadata["annotations"][keys.PHASE] = RolloutPhase.COMPLETE
            self._collect("")
            return
        own = [
            revision
            for revision in self.observe().revisions
            if target_revisions.is_promoted(revision)
        ]
        known = {one.template: one for one in map(proofs.proof_in, own) if one is not None}
        if proofs.identity(template) in known:
            self.edit(image)
            self.prove(image, self.now)
            self.body["metadata"]["annotations"].pop(keys.TARGET, None)
            self._collect("")
            return
        taken = {one.name for one in own}
        target = target_revisions.body_of(
            daemonsets.daemonset_of(self.body), template, image, taken
        )
        name = target["metadata"]["name"]
        self.body = copy.deepcopy(self.body)
        self.body["metadata"]["annotations"] |= {keys.TARGET: name, keys.PHASE: "Progressing"}
        self._collect(name)
        if name not in self.revisions:
            self.revisions[name] = self._born(target)

    def _collect(self, kept: str) -> None:
        for name, body in list(self.revisions.items()):
            if name != kept and not any(
                o["controller"] for o in body["metadata"]["ownerReferences"]
            ):
                del self.revisions[name]

    def inputs(self) -> StageInputs | None:
        seen = self.observe()
        target = target_revisions.target_of(seen.daemonset, seen.revisions)
        if target is None:
            return None
        record = target_revisions.record_of(seen.revisions, target)
        halted = halted_templates.parse(seen.daemonset.annotations)
        return StageInputs(
            self.policy,
            target,
            record,
            halted=frozenset(one.hash for one in halted),
            busy=self.busy,
            halted_elsewhere=self.halted_elsewhere,
        )

    def staged_turn(self, at_most: int | None = None) -> StagedDecision | None:
        """One turn of the rollout, with at most `at_most` writes."""
        inputs = self.inputs()
        if inputs is None:
            return None
        decided = self.decide(self.observe(), inputs)
        for action in decided.decision.actions[:at_most]:
            self.perform(action)
        self.last = decided
        self.most_at_risk = max(self.most_at_risk, decided.stages.at_risk)
        return decided

    def one_turn(self, at_most: int | None = None) -> StagedDecision | None:
        """One turn of the rollout, and one of the DaemonSet controller where that is another
        process.
        """
        staged = self.staged_turn(at_most)
        if not self.owned or staged is None:
            self.turn()
        elif staged.decision.status is not None:
            counters = daemonsets.counters(staged.decision.status.counts)
            self.body["status"] = {
                **counters,
                "observedGeneration": staged.decision.status.observed_generation,
            }
        return staged

    def deploy(self) -> None:
        """The deployer gives the DaemonSet its template when the target revision is one of its
        own.
        """
        name = self.body["metadata"]["annotations"].get(keys.TARGET, "")
        if name not in self.revisions:
            return
        revision = revisions.revision_of(self.revisions[name])
        if revision is None:
            return
        image = revision.template["spec"]["containers"][0]["image"]
        has_it = self.body["spec"]["template"]["spec"]["containers"][0]["image"] == image
        is_early = target_revisions.record_in(revision).early
        is_proven = proofs.proof_in(revision) is not None
        if not has_it and (is_early or is_proven):
            self.edit(image)
        if is_proven:
            self.prove(image, self.now)
            self.body["metadata"]["annotations"].pop(keys.TARGET)
            self._collect("")

    def pass_time(self, seconds: float = 5.0) -> None:
        """One round: the rollout, the controller, the deployer, the kubelets, and some seconds."""
        self.one_turn()
        self.deploy()
        self.kubelets()
        self.now += seconds - 1

    def until(self, holds: Callable[[], bool], rounds: int = 2_000) -> None:
        """Rounds until the condition is true."""
        for _ in range(rounds):
            if holds():
                return
            self.pass_time()
        raise AssertionError(self.last and (self.last.stages.hold, self.last.stages.stages))

    def canary(self, image: str = SECOND, nodes: int = 2) -> set[str]:
        """The nodes that a commit touches first, when they are as many as these."""
        self.commit(image)
        self.until(lambda: len(self.on(image)) >= nodes)
        return self.on(image)

    @property
    def stages(self) -> StagesDecision:
        """The last decision."""
        assert self.last is not None
        return self.last.stages

    @property
    def hold(self) -> str:
        """The reason of the hold, empty without one."""
        hold = self.last.stages.hold if self.last is not None else None
        return hold.reason if hold is not None else ""

    def run(self, rounds: int = 2_000, seconds: float = 5.0) -> None:
        """Rounds until the DaemonSet has the target and there is no further change."""
        for _ in range(rounds):
            before = self.state()
            self.pass_time(seconds)
            quiet = self.last is not None and self.last.stages.wake_at is None
            if quiet and before == self.state() and self.last and not self.last.decision.actions:
                return

    def state(self) -> tuple[Any, ...]:
        """The state that a round can change."""
        return (
            tuple(
                sorted(
                    (name, str(body.get("status")), str(body["metadata"]))
                    for name, body in self.pods.items()
                )
            ),
            str(self.body["spec"]["template"]),
        )

    def on(self, image: str) -> set[str]:
        """The nodes with a pod of that image that is not ending."""
        return {
            pod_of(body).node
            for body in self.pods.values()
            if body["spec"]["containers"][0]["image"] == image
            and "deletionTimestamp" not in body["metadata"]
        }
