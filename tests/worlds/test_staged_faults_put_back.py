"""Faults of staged rollouts that were in the service once, put back one at a time into a private
copy of it: some random world finds each.

The table of events is the whole one, and worlds are tried in the order of their seeds, so a fault
that this finds is one that the worlds of `test_staged_worlds` would have found.
"""

from __future__ import annotations

import pytest

from tests.worlds.private_copy import Copy

WORLDS = 300
SHARED = ("gitops_ds.model", "gitops_ds.errors")

FAULTS: dict[str, dict[str, tuple[str, ...]]] = {
    "R1: a ControllerRevision with the template proves it": {
        "gitops_ds.plan.rollouts.staging": (
            "return target_kind.of(self._wanted, self.history, rollback, self.context.now)",
            (
                "target = target_kind.of(self._wanted, self.history, rollback, self.context.now)\n"
                "        known = {proofs.identity(one.template) for one in "
                "self.live.revisions.get(self.manifest.key, ())}\n"
                "        if target.kind is TargetKind.FORWARD and self._wanted.template in known:\n"
                "            id, how = self._wanted.template, ProofKind.ROLLOUT\n"
                "            proof = TemplateProof(id, '', 1.0, how)\n"
                "            return target_kind.Target(TargetKind.ROLLBACK, proof)\n"
                "        return target"
            ),
        )
    },
    "R2: a node whose agent is not ready is parked": {
        "gitops_ds.rollouts.node_steps": (
            "until=until if self._now < until else None)",
            "step=NodeStep.PARKED)",
        )
    },
    "R3: a DaemonSet that was deleted is created with the template of Git": {
        "gitops_ds.plan.rollouts.staging": (
            "proven = self._daemonset('', self.history.template)",
            "proven = self._daemonset('', self._template)",
        )
    },
    "R4: nodes that are not well take the room of a return": {
        "gitops_ds.rollouts.node_selection": (
            "yield from (able if math.isinf(limit) else able[:int(limit)])",
            (
                "ill = {name for name, one in fleet.nodes.items() "
                "if one.reason or one.step in UPDATING}\n"
                "    room = _Room(fleet, ill)\n"
                "    yield from [name for name in able if room.admits(name)]"
            ),
        )
    },
    "R5: the pods of an abandoned template count as updated": {
        "gitops_ds.rollouts.node_steps": (
            (
                "if target.staged or target.edited or names.ROLLOUT in pod.labels:\n"
                "        return False"
            ),
            (
                "if not target.staged and names.ROLLOUT in pod.labels:\n        return True\n"
                "    if target.staged or target.edited:\n        return False"
            ),
        )
    },
    "R6: a restart counts against the template at any time": {
        "gitops_ds.rollouts.failures": (
            "if pod.restarts > gate.restarts and (not touched.rebooted):",
            "if pod.restarts > gate.restarts:",
            "if gate is not None and (not (touched.rebooted and is_starting)):",
            "if gate is not None:",
            "if pod.gated:\n            return False",
            "if True:\n            return False",
        )
    },
    "R7: an edit at rest is rolled out": {
        "gitops_ds.apimachinery.rollouts.target_revisions": (
            "wanted = proof.template if proof else live",
            "wanted = live",
        )
    },
    "R8: the gated pods of a DaemonSet without a policy stay gated": {
        "gitops_ds.controller.rollouts": (
            "if not is_owner or not any((pod.gated for pod in seen.pods)):",
            "if is_owner:",
        )
    },
    "R9: a return waits for one zone after the other": {
        "gitops_ds.rollouts.node_selection": (
            "limit = _at_once(fleet)\n    yield from",
            (
                "able = [name for stage, members in fleet.stages "
                "for name in _order(fleet, stage, members, []) if name in able]\n"
                "    limit = _at_once(fleet)\n    yield from"
            ),
            "if staged and ends + stage.soak_between > fleet.now:",
            "if ends + stage.soak_between > fleet.now:",
        )
    },
    "R10: a gate needs no values of some nodes": {
        "gitops_ds.rollouts.gate_readings": (
            "total - len(lacking) < min(total, gate.data_of.of(total)):",
            "total < 0:",
        )
    },
    "R11: a stage of parked nodes passes": {
        "gitops_ds.rollouts.staged_nodes": ("bool(able or not members) and all(", "all(")
    },
    "R12: a service paces the DaemonSets of another one": {
        "gitops_ds.controller.controller": (
            "return self._claimed is None or labels.get(names.OWNER_LABEL) in self._claimed",
            "return True",
        )
    },
    "R13: a canary that is lost takes no other node": {
        "gitops_ds.rollouts.staged_nodes": ("return frozenset(lost)", "return frozenset()")
    },
}


# A world that finds the fault, and is played first: the first one by number is late.
SOONEST = {"R8": 121, "R9": 81}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_source_has_its_place(fault: str) -> None:
    Copy(FAULTS[fault]).compile_changes()


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_world_finds_it(fault: str) -> None:
    copy = Copy(FAULTS[fault], SHARED)
    play, events = (
        copy.module("tests.worlds.staged_play"),
        copy.module("tests.worlds.staged_events"),
    )
    for seed in dict.fromkeys((SOONEST.get(fault[:2], 0), *range(WORLDS))):
        outcome = play.play(seed, events.TABLE)
        if outcome.wrong:
            print(outcome)
            return
    pytest.fail(f"none of {WORLDS} worlds finds it")
