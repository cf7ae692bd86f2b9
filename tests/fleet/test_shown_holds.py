"""Each kind of hold on each surface: status, get, page, JSON, metrics, and the one event."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from gitops_ds.cli.output import table
from gitops_ds.fleet import staged_health, staged_rollouts
from gitops_ds.fleet.staged_rollouts import StagedRollout
from gitops_ds.model.rollouts import rollout_policy
from gitops_ds.model.rollouts.staged_rollout import (
    HoldKind,
    RolloutRecord,
    RolloutTarget,
    StageHold,
    StageInputs,
    StageProgress,
    StagesDecision,
    StageState,
)
from gitops_ds.web.page import rollout_panel

REASON = "a reason of its own"
SOURCES = Path(rollout_policy.__file__).parents[2] / "rollouts"


def held(kind: HoldKind) -> StagedRollout:
    stage = StageProgress("canary", StageState.HELD, ("node-1",), 0)
    hold = StageHold(REASON, 86400.0, kind=kind)
    decided = StagesDecision((), frozenset(), (), (stage,), 0, 1, RolloutRecord(), hold)
    policy = rollout_policy.decode({})
    return StagedRollout(StageInputs(policy, RolloutTarget("h", {}), RolloutRecord()), decided)


@pytest.mark.parametrize("kind", HoldKind)
def test_each_hold_is_on_each_surface(kind: HoldKind) -> None:
    rollout = held(kind)
    until = "1970-01-02T00:00:00Z"
    shown = {
        "status": table.rollout(rollout),
        "get": staged_health.message(rollout),
        "page": rollout_panel.panel(rollout, None).hold,
    }
    for surface, text in shown.items():
        assert REASON in text, surface
        assert until in text, surface
    assert rollout.state == "canary (held)"
    expected = {"reason": REASON, "until": until, "kind": kind.value}
    document = staged_rollouts.as_json(rollout)
    assert document["hold"] == expected
    assert document["stages"][0]["waitsFor"] == expected
    assert staged_rollouts.counts(rollout).hold == kind.value


def test_each_kind_is_decided_and_each_hold_has_a_kind() -> None:
    calls, used = 0, set[str]()
    for path in SOURCES.glob("*.py"):
        text = path.read_text()
        used |= set(re.findall(r"HoldKind\.(\w+)", text))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "StageHold":
                calls += 1
                assert any(one.arg == "kind" for one in node.keywords), f"{path}:{node.lineno}"
    assert calls >= len(HoldKind)
    assert used == {kind.name for kind in HoldKind}


@pytest.mark.parametrize(
    ("before", "continues"),
    [
        (None, False),
        (StageHold("1 node still starting", kind=HoldKind.SUSPICION), True),
        (StageHold("2 nodes still starting", 5.0, kind=HoldKind.SUSPICION), True),
        (StageHold("2 nodes still starting", kind=HoldKind.PARKED), False),
        (StageHold("gate a", kind=HoldKind.SUSPICION, about="a"), False),
    ],
)
def test_a_suspicion_with_fewer_starting_nodes_is_the_same_hold(
    before: StageHold | None, continues: bool
) -> None:
    now = StageHold("1 node still starting", kind=HoldKind.SUSPICION)
    assert now.continues(before) == continues
