"""The output of a comparison: differences at a high level, agreement at a low one, a reconciliation
without actions not at all.
"""

from __future__ import annotations

from gitops_ds.daemonset import decide
from gitops_ds.model.events.base import Compared, Decided, Differed, DifferenceKind
from gitops_ds.model.objects import Key
from gitops_ds.telemetry import log_lines
from gitops_ds.telemetry.metrics import Metrics
from tests.daemonset import world
from tests.daemonset.world import World

KEY = Key("apps", "DaemonSet", "logging", "agent")
DIFFERED = Differed(7.0, KEY, 1.0, DifferenceKind.CREATE, "no pod on node-1", "made agent-x")
AGREED = Compared(8.0, KEY, 1.0, 0, {"node-1": 1, "node-2": 2}, {}, elsewhere={"node-1": 1})


def test_a_difference_is_a_warning() -> None:
    line = log_lines.line(DIFFERED)
    assert line == (
        "DaemonSet logging/agent: the built-in controller acted differently: ours wants "
        "no pod on node-1; theirs made agent-x"
    )
    assert log_lines.as_json(DIFFERED) == {
        "time": 7.0,
        "level": "warning",
        "kind": "Differed",
        "message": line,
        "object": "DaemonSet logging/agent",
        "since": 1.0,
        "what": "create",
        "ours": "no pod on node-1",
        "theirs": "made agent-x",
    }


def test_an_agreement_is_for_programs_and_names_no_nodes() -> None:
    assert log_lines.line(AGREED) is None
    document = log_lines.as_json(AGREED)
    assert document is not None
    assert {
        name: document[name]
        for name in ("differences", "created", "deleted", "elsewhere", "replaced", "at_risk")
    } == {
        "differences": 0,
        "created": 3,
        "deleted": 0,
        "elsewhere": 1,
        "replaced": 0,
        "at_risk": 0,
    }


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


def test_intervals_and_differences_are_counted() -> None:
    metrics = Metrics()
    for event in (DIFFERED, DIFFERED, AGREED):
        metrics.handle(event)
    text = metrics.text().decode()
    assert 'gitopsds_shadow_differences_total{what="create"} 2.0' in text
    assert 'gitopsds_shadow_intervals_total{result="agreed"} 1.0' in text
