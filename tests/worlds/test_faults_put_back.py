"""Faults that were in the service once, put back one at a time into a private copy of it: some
random world finds each.

The tables of events are the whole ones, and worlds are tried in the order of their seeds, so a
fault that this finds is one that the worlds of `test_worlds` would have found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.worlds.private_copy import Copy

WORLDS = 300
SHARED = ("gitops_ds.core",)

FAULTS: dict[str, dict[str, tuple[str, ...]]] = {
    "an orphan counts as the DaemonSet's before the cluster shows its adoption, and a refused "
    "adoption ends nothing": {
        "gitops_ds.daemonset.claims": (
            (
                "actions.append("
                'Adopt(key, it.uid, "it has no owner, and the selector matches it"))\n'
                "    return False"
            ),
            (
                "actions.append("
                'Adopt(key, it.uid, "it has no owner, and the selector matches it"))\n'
                "    return True"
            ),
        ),
        "gitops_ds.daemonset.decide": ("if claim.adopts:", "if False:"),
        "gitops_ds.controller.executor": (
            "        if errors:\n            grounded = isinstance(",
            (
                "        if errors and not isinstance(actions[0], Adopt):\n            grounded = "
                "isinstance("
            ),
        ),
    },
    "a Namespace that leaves Git is deleted as any object": {
        "gitops_ds.deploy.plan.deletions": (
            (
                'return (key.group, key.kind) in (("", "Namespace"), ("apiextensions.k8s.io", '
                '"CustomResourceDefinition"))'
            ),
            "return False",
        ),
    },
    "a watch that fails while lists work is retried indefinitely, without a list": {
        "gitops_ds.kube.client.informer": (
            "    if (broken or silent) and (not isinstance(ended.error, errors.Expired)):",
            "    if False:",
        ),
    },
    "a picture of any age is good enough": {
        "gitops_ds.deploy.watch_cache": ("OLDEST_PICTURE = 660.0", "OLDEST_PICTURE = 1e9"),
    },
    "a revision that a finalizer holds is deleted again and again, and nothing slows that down": {
        "gitops_ds.daemonset.history": (
            "staying = [revision for revision in old if not revision.deleting]",
            "staying = list(old)",
        ),
        "gitops_ds.controller.controller": (
            ("failed = bool(outcome.errors or outcome.refused) or self._is_futile(key, decision)"),
            "failed = False",
        ),
    },
    "what is created and vanishes is created again at once": {
        "gitops_ds.daemonset.memory": ("often = often or count > OFTEN", "pass"),
    },
    "what carries the owner's label is deleted, regardless of its writer": {
        "gitops_ds.ownership.object_owner": (
            (
                "mark_of(live) not in (None, mark(owner, key)):\n        return False\n"
                "    return key in inventory"
            ),
            "False:\n        return False\n    return True or key in inventory",
        ),
    },
    "an update may take the agents from any number of nodes": {
        "gitops_ds.deploy.plan.planner": (
            "return change.operation is Operation.UPDATE and bool(",
            "return False and bool(",
        ),
    },
    "while Git is away nothing is healed": {
        "gitops_ds.deploy.source_requests": (
            "            return TipAnswer(last_tip, received=True, error=error)",
            "            raise error",
            "if last_tip is not None and (not is_due):",
            "if False:",
        ),
    },
    "drift that returns is corrected at once, indefinitely": {
        "gitops_ds.deploy.plan.drift": ("if now < row.at + row.wait)", "if False)"),
    },
    "a change in the cluster asks Git": {
        "gitops_ds.deploy.source_requests": (
            "if last_tip is not None and (not is_due):",
            "if False:",
        ),
    },
    "a watch that ends with an internal error is not started again": {
        "gitops_ds.kube.client.supervisor": ("await asyncio.sleep(wait)", "return"),
    },
    "an older revision is taken for the newest one, which was deleted": {
        "gitops_ds.daemonset.history": (
            "return [latest] if made_from_it == {hash_in(latest)} and revisions.holds_more(",
            "return [latest] if revisions.holds_more(",
        ),
    },
    "a pod of an earlier life of the DaemonSet counts as updated": {
        "gitops_ds.daemonset.node_pods": (" and (pod.hash not in self.outdated)", ""),
    },
    "the pods of a node that is gone hold back every update": {
        "gitops_ds.daemonset.rollout_forecast": ("if node in existing}", "}"),
    },
    "stores whose watches fail are waited for one after the other": {
        "gitops_ds.deploy.watch_cache": (
            "await asyncio.gather(*(store.level.wait() for store in self._stores.values()))",
            "for store in self._stores.values():\n                    await store.level.wait()",
        ),
    },
}

STAGED: dict[str, dict[str, tuple[str, ...]]] = {
    "R1: a ControllerRevision with the template proves it": {
        "gitops_ds.rollouts.staging.staging": (
            "return targets.target_of(self._wanted, self.history, rollback, self.context.now)",
            (
                "target = targets.target_of("
                "self._wanted, self.history, rollback, self.context.now)\n"
                "        known = {proofs.identity(one.template) for one in "
                "self.live.revisions.get(self.manifest.key, ())}\n"
                "        if target.kind is TargetKind.FORWARD and self._wanted.template in known:\n"
                "            id, how = self._wanted.template, ProofKind.ROLLOUT\n"
                "            proof = TemplateProof(id, '', 1.0, how)\n"
                "            return targets.Target(TargetKind.ROLLBACK, proof)\n"
                "        return target"
            ),
        )
    },
    "R2: a node whose agent is not ready is parked": {
        "gitops_ds.rollouts.decisions.node_steps": (
            "until=until if self._now < until else None)",
            "step=NodeStep.PARKED)",
        )
    },
    "R3: a DaemonSet that was deleted is created with the template of Git": {
        "gitops_ds.rollouts.staging.staging": (
            "proven = self._daemonset('', self.history.template)",
            "proven = self._daemonset('', self._template)",
        )
    },
    "R4: nodes that are not well take the room of a return": {
        "gitops_ds.rollouts.decisions.node_selection": (
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
        "gitops_ds.rollouts.decisions.node_steps": (
            ("if target.staged or target.edited or pod.pinned:\n        return False"),
            (
                "if not target.staged and pod.pinned:\n        return True\n"
                "    if target.staged or target.edited:\n        return False"
            ),
        )
    },
    "R6: a restart counts against the template at any time": {
        "gitops_ds.rollouts.decisions.failures": (
            "if pod.restarts > gate.restarts and (not touched.rebooted):",
            "if pod.restarts > gate.restarts:",
            "if gate is not None and (not (touched.rebooted and is_starting)):",
            "if gate is not None:",
            "if pod.waits or not (pod.ready or self._lost_readiness):\n            return False",
            "if True:\n            return False",
        )
    },
    "R7: an edit at rest is rolled out": {
        "gitops_ds.rollouts.state.target_revisions": (
            "wanted = proof.template if proof else live",
            "wanted = live",
        )
    },
    "R8: a pinned pod waits behind a scheduling gate": {
        "gitops_ds.rollouts.decisions.pinned_bodies": (
            "return {**spec, 'affinity': {**affinity, 'podAntiAffinity': apart}}",
            "return {**spec, 'schedulingGates': [{'name': 'example.com/gate'}]}",
        )
    },
    "R9: a return waits for one zone after the other": {
        "gitops_ds.rollouts.decisions.node_selection": (
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
        "gitops_ds.rollouts.decisions.gate_readings": (
            "total - len(lacking) < min(total, gate.data_of.of(total)):",
            "total < 0:",
        )
    },
    "R11: a stage of parked nodes passes": {
        "gitops_ds.rollouts.decisions.staged_nodes": ("bool(able or not members) and all(", "all(")
    },
    "R12: a service paces the DaemonSets of another one": {
        "gitops_ds.controller.controller": (
            "return not self._claimed.isdisjoint(self._owners(daemonset))",
            "return True",
        )
    },
    "T1: an edit that removes nodes completes a rollout": {
        "gitops_ds.rollouts.decisions.stage_inputs": (
            "moved=target.staged and _is_moved(seen, target)",
            "moved=False",
        )
    },
    "T2: a template is adopted from the DaemonSet in the cluster": {
        "gitops_ds.rollouts.staging.template_history": (
            "history.applied)\n    if applied is None:",
            (
                "None)\n    applied = RecordedTemplate("
                "proofs.identity(live), git.source, git.commit, body=live)\n"
                "    if applied is None:"
            ),
        )
    },
    "T3: the annotation of a DaemonSet proves a template": {
        "gitops_ds.rollouts.staging.template_history": (
            "history = replace(history, uid=str(metadata.get('uid') or ''))",
            (
                "stated = proofs.in_force(annotations_of(old)) or history.proof\n"
                "        history = replace("
                "history, proof=stated, uid=str(metadata.get('uid') or ''))"
            ),
        )
    },
    "T4: a place that another pod took is evidence against the template": {
        "gitops_ds.rollouts.decisions.symptoms": (
            "if not found or any(",
            "if not pod.bound or not found or any(",
        )
    },
    "R13: a canary that is lost takes no other node": {
        "gitops_ds.rollouts.decisions.staged_nodes": (
            "return frozenset(lost)",
            "return frozenset()",
        )
    },
}


# A world that finds the fault, and is played first: the worlds before it find nothing, or the first
# one that finds it takes more CPU.
SOONEST = {
    "an orphan counts as the DaemonSet's before the cluster shows its adoption, and a refused "
    "adoption ends nothing": 8,
    "a watch that fails while lists work is retried indefinitely, without a list": 33,
    "a revision that a finalizer holds is deleted again and again, and nothing slows that down": 7,
    "what carries the owner's label is deleted, regardless of its writer": 5,
    "an update may take the agents from any number of nodes": 6,
    "while Git is away nothing is healed": 8,
    "drift that returns is corrected at once, indefinitely": 23,
    "a change in the cluster asks Git": 8,
    "a watch that ends with an internal error is not started again": 5,
    "stores whose watches fail are waited for one after the other": 54,
    "a pod of an earlier life of the DaemonSet counts as updated": 47,
    "the pods of a node that is gone hold back every update": 19,
    "R3": 4,
    "R4": 41,
    "R5": 9,
    "R6": 54,
    "R7": 10,
    "R8": 1,
    "R9": 54,
    "R10": 8,
    "R11": 2,
    "R12": 24,
    "R13": 304,
    "T4": 59,
    "T1": 143,
    "T2": 7,
    "T3": 3,
}


@pytest.mark.parametrize("fault", [*FAULTS, *STAGED])
def test_the_source_has_its_place(fault: str) -> None:
    Copy({**FAULTS, **STAGED}[fault]).compile_changes()


def test_each_first_world_is_that_of_a_fault() -> None:
    assert SOONEST.keys() <= {*FAULTS, *(fault.partition(":")[0] for fault in STAGED)}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_world_finds_it(fault: str) -> None:
    copy = Copy(FAULTS[fault])
    world, events = copy.module("tests.worlds.world"), copy.module("tests.worlds.events")
    find(lambda seed: world.play(seed, events.EVENTS), SOONEST.get(fault, 0))


@pytest.mark.slow
@pytest.mark.parametrize("fault", STAGED)
def test_a_staged_world_finds_it(fault: str) -> None:
    copy = Copy(STAGED[fault], SHARED)
    play = copy.module("tests.worlds.staged_play").play
    table = copy.module("tests.worlds.staged_events").TABLE
    find(lambda seed: play(seed, table), SOONEST.get(fault.partition(":")[0], 0))


def find(play: Callable[[int], Any], first: int) -> None:
    for seed in dict.fromkeys((first, *range(WORLDS))):
        outcome = play(seed)
        if outcome.wrong:
            print(outcome)
            return
    pytest.fail(f"none of {WORLDS} worlds finds it")
