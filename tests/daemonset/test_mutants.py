"""The same tests against a controller core with a bug planted on purpose: each bug is caught, every
time.

A mutant is a private copy of our modules in which one line is another. Its judges are the plain
test functions of some modules of this folder, taken from the same copy; those of Hypothesis are
left out, for their luck.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.daemonset.private_copy import Copy

JUDGES = (
    "test_upstream_controller",
    "test_upstream_rollout",
    "test_one_pod_per_node",
    "test_history",
    "test_rollout",
    "test_status_and_health",
)

CORE, KINDS = "gitops_ds.daemonset.", "gitops_ds.apimachinery."

MUTANTS: dict[str, tuple[str, str, str]] = {
    "one pod more than the budget goes": (
        f"{CORE}rolling_update",
        "room = max(0, max_unavailable - unavailable)",
        "room = max(0, max_unavailable - unavailable + 1)",
    ),
    "one pod less than the budget goes": (
        f"{CORE}rolling_update",
        "room = max(0, max_unavailable - unavailable)",
        "room = max(0, max_unavailable - unavailable - 1)",
    ),
    "one pod more than maxSurge comes": (
        f"{CORE}rolling_update",
        "max(0, max_surge - surge)",
        "max(0, max_surge - surge + 1)",
    ),
    "new pods that are not available yet do not count for maxSurge": (
        f"{CORE}rolling_update",
        "            else:\n                surge += 1",
        "            else:\n                surge += 0",
    ),
    "pods that are not available do not go first": (
        f"{CORE}rolling_update",
        "chosen = broken + [",
        "chosen = broken[: max_unavailable] + [",
    ),
    "an old pod that is not available does not count as such": (
        f"{CORE}rolling_update",
        "            unavailable += 1\n            unready += not old.ready",
        "            unready += not old.ready",
    ),
    "pods that are ready, but not long enough, all go at once": (
        f"{CORE}rolling_update",
        "room = max(0, max_unavailable - unready)",
        "room = len(young)",
    ),
    "a rollout moves before every node is settled": (
        f"{CORE}decide",
        "changes = placed or rolling_update.changes(layout)",
        "changes = rolling_update.changes(layout) or placed",
    ),
    "per cent is rounded down": (
        "gitops_ds.model.daemonset",
        "-(-self.amount * total // 100)",
        "(self.amount * total // 100)",
    ),
    "no budget at all is not a budget": (
        f"{KINDS}daemonsets",
        "(1, 0) if desired and",
        "(0, 0) if desired and",
    ),
    "minReadySeconds is ignored": (
        f"{CORE}node_pods",
        "return pod.ready and (not seconds or pod.available(",
        "return pod.ready or (not seconds or pod.available(",
    ),
    "minReadySeconds must be passed, not reached": (
        "gitops_ds.model.daemonset",
        "since is not None and since <= now",
        "since is not None and (since < now or not min_ready_seconds)",
    ),
    "the old pod goes before the new one is available": (
        f"{CORE}one_pod_per_node",
        "elif self.layout.available(new):",
        "else:",
    ),
    "the old pod that is not ready stays": (
        f"{CORE}one_pod_per_node",
        "if not old.ready:",
        "if not old:",
    ),
    "of two pods the younger stays": (
        f"{CORE}node_pods",
        "pod.created, pod.name",
        "-pod.created, pod.name",
    ),
    "a pod that waits for its node is kept before one that runs": (
        f"{CORE}node_pods",
        "return (not pod.bound,",
        "return (pod.bound,",
    ),
    "the back-off of failed pods is ignored": (
        f"{CORE}one_pod_per_node",
        "last.since <= now < last.until",
        "last.since < now < last.since",
    ),
    "the back-off does not grow": (
        f"{CORE}memory",
        "min(2 * last.delay, LONGEST_DELAY)",
        "min(last.delay, LONGEST_DELAY)",
    ),
    "a succeeded pod stays": (
        f"{CORE}one_pod_per_node",
        "elif pod.phase is Phase.SUCCEEDED:",
        "elif pod.phase is None:",
    ),
    "an ended pod that is stuck keeps its node empty": (
        f"{CORE}node_pods",
        "not (pod.terminating and pod.ended)",
        "pod is not None",
    ),
    "a pod that is being deleted is not waited for": (
        f"{CORE}node_pods",
        "not (pod.terminating and pod.ended)",
        "not pod.terminating",
    ),
    "unreachable nodes are not tolerated": (
        f"{KINDS}tolerations",
        '("node.kubernetes.io/unreachable", NO_EXECUTE), ',
        "",
    ),
    "disk pressure is not tolerated": (
        f"{KINDS}tolerations",
        '("node.kubernetes.io/disk-pressure", NO_SCHEDULE), ',
        "",
    ),
    "NoSchedule evicts": (
        f"{KINDS}node_eligibility",
        "if tolerations.NO_EXECUTE in untolerated else",
        "if untolerated else",
    ),
    "one matching part of node selector and affinity is enough": (
        f"{KINDS}node_eligibility",
        "            if labels.get(key) != value:\n                return False",
        "            if labels.get(key) == value:\n                return True",
    ),
    "a former template does not get its revision's number moved": (
        f"{CORE}history",
        "if kept.number < number:",
        "if not number:",
    ),
    "a revision that a pod runs is pruned": (
        f"{CORE}history",
        "if hash_in(revision) not in live]",
        "if hash_in(revision)]",
    ),
    "one old revision too many is kept": (
        f"{CORE}history",
        "excess = len(staying) - daemonset.history_limit",
        "excess = len(staying) - daemonset.history_limit - 1",
    ),
    "of twin revisions the lower one stays": (
        f"{CORE}history",
        "kept = max(current, key=lambda",
        "kept = min(current, key=lambda",
    ),
    "pods restart when their revision was replaced by an equal one": (
        f"{CORE}node_pods",
        "bool(generation) and pod.template_generation == generation and",
        "bool(generation) and not generation and",
    ),
    "a pod that left the selector still counts": (
        f"{CORE}claims",
        "        return matches",
        "        return True",
    ),
    "an orphan that the selector matches is not taken": (
        f"{CORE}claims",
        "if not matches or it.terminating:",
        "if matches or it.terminating:",
    ),
    "an orphan is adopted and decided upon in one turn": (
        f"{CORE}decide",
        "if claim.adopts:",
        "if not claim.actions and claim.adopts:",
    ),
    "a revision that is being deleted is deleted again": (
        f"{CORE}history",
        "staying = [revision for revision in old if not revision.deleting]",
        "staying = list(old)",
    ),
    "the newest revision is gone, and an older one is taken for it": (
        f"{CORE}history",
        "if made_from_it == {hash_in(latest)} and",
        "if",
    ),
    "a foreign revision under our name is fought": (
        f"{CORE}history",
        "not revisions.same_template(namesake",
        "revisions.same_template(namesake",
    ),
    "creates do not wait for the watch": (
        f"{CORE}pod_changes",
        "max(0, BURST - unshown)",
        "max(0, BURST - 0 * unshown)",
    ),
    "a turn knows no burst": (f"{CORE}pod_changes", "BURST = 250", "BURST = 2500"),
    "a pod that waits for a vanished node is never deleted": (
        f"{CORE}one_pod_per_node",
        "if not pod.bound:",
        "if pod.bound and not pod.bound:",
    ),
    "a node that may not run a pod counts as desired": (
        f"{CORE}status",
        "            misscheduled += bool(node_pods.pods)\n            continue",
        "            misscheduled += bool(node_pods.pods)",
    ),
    "a new generation alone is not written into the status": (
        f"{CORE}status",
        "daemonset.observed_generation >= daemonset.generation",
        "daemonset.observed_generation >= 0",
    ),
}


def verdict(copy: Copy) -> str:
    """The first test that fails, and nothing when all pass."""
    for name in JUDGES:
        for label, test in _tests(copy, f"tests.daemonset.{name}"):
            try:
                test()
            except AssertionError as error:
                return f"{label}: {error!r}"
    return ""


def _tests(copy: Copy, name: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """The plain test functions of a module, once for each row of their tables."""
    module = copy.module(name)
    for label, function in vars(module).items():
        if (
            not label.startswith("test_")
            or hasattr(function, "hypothesis")
            or not inspect.isfunction(function)
        ):
            continue
        tables = [
            mark.args for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"
        ]
        rows = [
            [
                dict(zip(names, values, strict=True))
                if isinstance(names, tuple)
                else {names: values}
                for values in table
            ]
            for names, table in tables
        ]
        for chosen in itertools.product(*rows):
            yield (
                label,
                partial(function, **{key: value for row in chosen for key, value in row.items()}),
            )


def test_without_a_bug_the_copy_passes() -> None:
    assert verdict(Copy({})) == ""


def test_the_source_has_the_place_of_each_bug() -> None:
    for module, old, new in MUTANTS.values():
        Copy({module: (old, new)}).compile_changes()


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "old", "new"), MUTANTS.values(), ids=MUTANTS)
def test_a_planted_bug_is_caught(module: str, old: str, new: str) -> None:
    assert verdict(Copy({module: (old, new)}))
