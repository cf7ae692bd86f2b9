"""A turn of a staged rollout in a journal: its line has what decided, and repeats the decision."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path

import pytest

from gitops_ds.controller.journal import codec, replay
from gitops_ds.controller.journal.files import Journal, JournalLimits
from gitops_ds.controller.powers import Powers
from gitops_ds.model.daemonset import PodCause
from gitops_ds.model.decision import PromoteRevision, RecordRollout
from gitops_ds.model.events.base import Decided
from gitops_ds.model.rollouts.rollout_gates import GateSample, Probe, ProbeKind, Reading
from gitops_ds.model.rollouts.staged_turn import OutsideInputs, StagedTurn
from gitops_ds.model.values import replace
from gitops_ds.simulator import NodeSpec, PodFault, Trouble
from tests.deployer import rollout_scene
from tests.deployer.rollout_scene import Scene
from tests.deployer.test_rollout_faults import spoil

POLICY = """\
stages:
  - {name: canary, nodes: {count: 3}, soak: 2m, pace: {start: 3, max: 3}}
  - {name: rest, soak: 30s, nodesWhen: idle-or-1m}
limits: {atRisk: {cluster: 100%}, api: {writesPerSecond: 3}}
"""


def turns(powers: Powers) -> list[Decided]:
    """A rollout that ends, and one that is halted."""
    records: list[Decided] = []

    async def script(scene: Scene) -> None:
        scene.push("2")
        await scene.until(lambda: len(scene.on("2")) == len(scene.pods()))
        await asyncio.sleep(120)
        spoil(scene, PodFault("*:bad", Trouble.NEVER_PULLED))
        scene.push("bad")
        await scene.until(lambda: scene.decision.halt is not None)
        records.extend(
            one for one in scene.events if isinstance(one, Decided) and one.staged is not None
        )

    rollout_scene.play(powers, script, policy=POLICY, nodes=[NodeSpec(f"n{i}") for i in range(6)])
    return records


def written(directory: Path, records: list[Decided]) -> Path:
    journal = Journal(directory / "journal", JournalLimits(), lambda _: None)
    for record in records:
        journal.handle(record)
    journal.close()
    (file,) = (directory / "journal").iterdir()
    return file


@pytest.mark.sampled
@pytest.mark.parametrize("powers", [Powers.PACE, Powers.FULL])
def test_staged_turns_replay_without_a_difference(tmp_path: Path, powers: Powers) -> None:
    records = turns(powers)
    file = written(tmp_path, records)
    result = replay.replay(file)
    assert result.agrees, [str(one) for one in (*result.differences[:3], *result.unread)]
    assert result.turns == len(records)
    read = [one[1] for one in replay.turns(file) if not isinstance(one, replay.Unread)]
    assert [one.staged for one in read] == [one.staged for one in records]
    assert [one.seen for one in read] == [one.seen for one in records]
    kinds = {type(action) for record in records for action in record.decision.actions}
    assert kinds >= {RecordRollout, PromoteRevision}
    outcomes = [one.staged.outcome for one in records if one.staged is not None]
    assert any(one.take for one in outcomes)
    assert any(one.hold for one in outcomes)
    assert any(one.halt for one in outcomes)
    assert any(one.complete for one in outcomes)


def test_a_difference_of_the_stages_is_reported(tmp_path: Path) -> None:
    records = turns(Powers.PACE)
    file = written(tmp_path, records)
    lines = file.read_text().splitlines(keepends=True)
    number = next(
        i for i, line in enumerate(lines) if '"hold":"soak' in line or '"take":["' in line
    )
    line = json.loads(lines[number])
    line["decided"]["stages"]["at_risk"] += 1
    lines[number] = json.dumps(line) + "\n"
    file.write_text("".join(lines))
    (difference,) = replay.replay(file).differences
    assert difference.line == number + 1
    assert difference.then.startswith("stages.at_risk ")


def test_every_input_from_outside_is_in_the_line() -> None:
    (record, *_) = turns(Powers.PACE)
    assert record.staged is not None
    probe = Probe("canary", "errors", ProbeKind.PROMETHEUS)
    samples = (GateSample(math.inf), GateSample(0.5, "node", "below", before=1.5))
    outside = OutsideInputs(
        {probe: Reading(5.0, frozenset({"n1"}), samples, (1.0, 2.0), None, "why", first=1.0)},
        {"a": None, "b": frozenset({"n2"})},
        frozenset({"n3"}),
        "no",
        7.5,
        "DaemonSet a/b",
        3,
        {"uid": PodCause("FailedMount", "no Secret")},
    )
    turn = StagedTurn(outside, True, record.staged.outcome)
    writer, reader = codec.JournalWriter(), codec.Reader()
    for one in (turn, replace(turn, outside=OutsideInputs()), None, turn):
        line, _ = writer.line(replace(record, staged=one))
        assert reader.turn(line).staged == one
