"""Faults that were in the service once, put back one at a time into a private copy of it: some
random world finds each.

The table of events is the whole one, and worlds are tried in the order of their seeds, so a fault
that this finds is one that the thousand worlds would have found.
"""

from __future__ import annotations

import pytest

from tests.worlds.private_copy import Copy

WORLDS = 200

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
        "gitops_ds.plan.deletions": (
            (
                'return (key.group, key.kind) in (("", "Namespace"), ("apiextensions.k8s.io", '
                '"CustomResourceDefinition"))'
            ),
            "return False",
        ),
    },
    "a watch that fails while lists work is retried indefinitely, without a list": {
        "gitops_ds.client.informer": (
            (
                "    if (broken or ended.silent_for >= LONGEST_SILENCE) and "
                "(not isinstance(ended.error, Expired)):"
            ),
            "    if False:",
        ),
    },
    "a picture of any age is good enough": {
        "gitops_ds.deployer.watch_cache": ("OLDEST_PICTURE = 660.0", "OLDEST_PICTURE = 1e9"),
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
        "gitops_ds.plan.object_owner": (
            (
                "mark_of(live) not in (None, mark(owner, key)):\n        return False\n"
                "    return key in inventory"
            ),
            "False:\n        return False\n    return True or key in inventory",
        ),
    },
    "an update may take the agents from any number of nodes": {
        "gitops_ds.plan.planner": (
            "return change.operation is Operation.UPDATE and bool(",
            "return False and bool(",
        ),
    },
    "while Git is away nothing is healed": {
        "gitops_ds.deployer.tip_lookup": (
            "            return TipAnswer(last_tip, received=True, error=error)",
            "            raise error",
            "if last_tip is not None and (not is_due):",
            "if False:",
        ),
    },
    "drift that returns is corrected at once, indefinitely": {
        "gitops_ds.plan.drift": ("if now < row.at + row.wait)", "if False)"),
    },
    "a change in the cluster asks Git": {
        "gitops_ds.deployer.tip_lookup": ("if last_tip is not None and (not is_due):", "if False:"),
    },
    "a watch that ends with an internal error is not started again": {
        "gitops_ds.client.supervisor": ("await asyncio.sleep(wait)", "return"),
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
        "gitops_ds.daemonset.preview": ("if node in existing}", "}"),
    },
    "stores whose watches fail are waited for one after the other": {
        "gitops_ds.deployer.watch_cache": (
            "await asyncio.gather(*(store.level.wait() for store in self._stores.values()))",
            "for store in self._stores.values():\n                    await store.level.wait()",
        ),
    },
}


# A world that finds the fault, and is played first: the first one by number is expensive, or late.
SOONEST = {
    "a watch that fails while lists work is retried indefinitely, without a list": 33,
    "a revision that a finalizer holds is deleted again and again, and nothing slows that down": 7,
    "stores whose watches fail are waited for one after the other": 54,
    "drift that returns is corrected at once, indefinitely": 23,
    "a pod of an earlier life of the DaemonSet counts as updated": 47,
    "the pods of a node that is gone hold back every update": 19,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_source_has_its_place(fault: str) -> None:
    Copy(FAULTS[fault]).compile_changes()


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_world_finds_it(fault: str) -> None:
    copy = Copy(FAULTS[fault])
    world, events = copy.module("tests.worlds.world"), copy.module("tests.worlds.events")
    for seed in dict.fromkeys((SOONEST.get(fault, 0), *range(WORLDS))):
        outcome = world.play(seed, events.EVENTS)
        if outcome.wrong:
            print(outcome)
            return
    pytest.fail(f"none of {WORLDS} worlds finds it")
