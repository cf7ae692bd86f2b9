"""The output of a comparison: differences at a high level, agreement at a low one, a reconciliation
without actions not at all.
"""

from __future__ import annotations

from gitops_ds.core.events.base import Compared, Decided, Differed, DifferenceKind
from gitops_ds.core.objects import Key
from gitops_ds.daemonset import decide
from gitops_ds.notify import log_lines
from tests.daemonset import world
from tests.daemonset.world import World

KEY = Key("apps", "DaemonSet", "logging", "agent")
DIFFERED = Differed(7.0, KEY, 1.0, DifferenceKind.CREATE, "no pod on node-1", "made agent-x")
AGREED = Compared(8.0, KEY, 1.0, 0, {"node-1": 1, "node-2": 2}, {}, elsewhere={"node-1": 1})


def test_a_difference_is_a_warning() -> None:
    document = log_lines.as_json(DIFFERED)
    assert document is not None
    assert (document["level"], document["ours"]) == ("warning", "no pod on node-1")
    assert (
        log_lines.line(DIFFERED)
        == document["message"]
        == (
            "DaemonSet logging/agent: the built-in controller acted differently: ours wants "
            "no pod on node-1; theirs made agent-x"
        )
    )


def test_an_agreement_is_for_programs_and_names_no_nodes() -> None:
    assert log_lines.line(AGREED) is None
    document = log_lines.as_json(AGREED)
    assert document is not None
    counts = {"differences": 0, "created": 3, "deleted": 0, "elsewhere": 1, "replaced": 0}
    assert {**counts, "at_risk": 0}.items() <= document.items()


def test_a_reconciliation_without_actions_is_not_logged() -> None:
    there = World(world.daemonset(), 2)
    first = there.observe()
    there.settle()
    last = there.observe()
    wanting, idle = (
        Decided(seen.now, KEY, decide.decide(seen), False, seen) for seen in (first, last)
    )
    assert log_lines.as_json(wanting) == {
        "time": first.now,
        "level": "debug",
        "kind": "Decided",
        "object": "DaemonSet logging/agent",
    }
    assert log_lines.as_json(idle) is None
