"""How a plan names nodes, the pace of a rollout, values, long lists
and the stages of a rollout.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.change import (
    Change,
    FieldChange,
    Operation,
    Rollout,
    StagedPreview,
    StagePreview,
)
from gitops_ds.core.live import Census, NodeImpact
from gitops_ds.core.objects import Digest, Key
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import guard_limits, planner, printers
from gitops_ds.ownership import object_owner
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.rollouts.state import keys
from tests.plan.test_show import planned

KEY = Key("apps", "DaemonSet", "default", "agent")


def manifest(agent: str = "agent", *needs: str, **spec: Any) -> Manifest:
    written = next(change.manifest for change in planned().writes if change.manifest)
    body = {"spec": spec}
    return replace(written, key=KEY, body=body, digest=Digest(""), agent=agent, depends_on=needs)


def rolling(**budget: Any) -> Change:
    strategy = {"type": "RollingUpdate", "rollingUpdate": budget}
    return Change(Operation.UPDATE, KEY, manifest(updateStrategy=strategy))


@pytest.mark.parametrize(
    ("budget", "nodes", "words"),
    [
        ({}, 3, "at most 1 at a time, so in 3 batches"),
        ({"maxUnavailable": 2}, 5, "at most 2 at a time, so in 3 batches"),
        ({"maxUnavailable": "25%"}, 10, "at most 3 at a time, so in 4 batches"),
        ({"maxUnavailable": "10%"}, 10, "at most 1 at a time, so in 10 batches"),
        ({"maxUnavailable": 10}, 10, "at most 10 at a time, so in 1 batch"),
        ({"maxUnavailable": 0, "maxSurge": 2}, 4, "at most 2 at a time, so in 2 batches"),
        ({"maxUnavailable": 2, "maxSurge": 0}, 4, "at most 2 at a time, so in 2 batches"),
        ({"maxUnavailable": 2, "maxSurge": "0%"}, 4, "at most 2 at a time, so in 2 batches"),
        ({"maxUnavailable": "100%"}, 101, "at most 101 at a time, so in 1 batch"),
        ({"maxUnavailable": "1%"}, 0, "at most 1 at a time, so in 0 batches"),
    ],
)
def test_the_pace_of_a_rollout_is_that_of_its_budget(
    budget: dict[str, Any], nodes: int, words: str
) -> None:
    assert printers._pace(rolling(**budget), nodes) == words


def test_many_nodes_are_named_by_the_first_and_their_number() -> None:
    most = printers.SHOWN_NODES
    assert most == 12
    some = [f"n{index}" for index in range(most + 2)]
    assert printers._nodes(some[:1]) == "1 node: n0"
    assert printers._nodes(some[:most]).endswith(f", n{most - 1}")
    assert printers._nodes(some).endswith(f"n{most - 1} and 2 more")


def test_many_objects_are_named_by_the_first_and_their_number() -> None:
    most = guard_limits.SHOWN
    assert most == 5
    some = [f"o{index}" for index in range(most + 3)]
    assert guard_limits.shown(some[:most]) == ", ".join(some[:most])
    assert guard_limits.shown(some) == f"{', '.join(some[:most])} and 3 more"


def test_a_long_value_is_cut_and_none_is_named() -> None:
    assert printers._value(None) == "(none)"
    assert printers._value("a" * 158) == f'"{"a" * 158}"'
    assert printers._value("a" * 159) == f'"{"a" * 156}...'


def test_a_value_keeps_letters_of_other_alphabets() -> None:
    assert printers._value("größer") == '"größer"'


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a", "`a`"),
        ("a|b", "`a\\|b`"),
        ("a\nb", "`a b`"),
        ("a ` b", "`` a ` b ``"),
        ("a``b", "``` a``b ```"),
        ("a `` b", "``` a `` b ```"),
        ("a ```` b `` c", "````` a ```` b `` c `````"),
    ],
)
def test_no_text_leaves_its_code_span(text: str, code: str) -> None:
    assert printers._code(text) == code


def test_only_updates_of_the_spec_of_daemonsets_may_move_pods() -> None:
    spec, label = FieldChange(("spec", "x"), 1, 2), FieldChange(("metadata", "labels", "x"), 1, 2)
    plain, other = Key("", "ConfigMap", "default", "a"), replace(KEY, name="other")
    changes = (
        Change(Operation.UPDATE, KEY, None, (label, spec)),
        Change(Operation.UPDATE, other, None, (label,)),
        Change(Operation.UPDATE, plain, None, (spec,)),
        Change(Operation.CREATE, other, None, (spec,)),
        Change(Operation.KEEP, other, None, (spec,)),
    )
    assert planner.moving(replace(planned(), changes=changes)) == (KEY,)


def test_only_an_object_taken_over_from_another_owner_has_its_uid() -> None:
    stamp = Stamp("owner", repository="r", commit="c", subject="s", uid="u")
    annotations = object_owner.stamped(manifest(), stamp)["metadata"]["annotations"]
    assert names.TEMPLATE_UID not in annotations
    assert (annotations[names.REPOSITORY], annotations[names.COMMIT]) == ("r", "c")
    assert annotations[names.CHANGE_CAUSE] == "s"
    bare = object_owner.stamped(manifest(), Stamp("owner", tracks=False))["metadata"]
    assert bare["annotations"].keys() == {names.PATH}
    assert bare["labels"][names.OWNER_LABEL] == "owner"


@pytest.mark.parametrize(
    ("known_as", "words"),
    [
        (None, "new revision 6"),
        (2, "back to revision 2, which becomes revision 6"),
        (6, "revision 6, the newest one in the cluster"),
    ],
)
def test_the_revision_of_a_change_is_named(known_as: int | None, words: str) -> None:
    rollout = Rollout(Digest("a"), Digest("b"), 5, known_as, 6)
    change = Change(Operation.UPDATE, KEY, manifest(), rollout=rollout)
    assert any(words in line for line in printers.change_lines([change]))


STAGES = StagedPreview((StagePreview("canary", ()), StagePreview("rest", ())), 0.0, 1)
ROLLS = Rollout(Digest("a"), Digest("b"), 5, None, 6)
STAYS = Rollout(Digest("a"), Digest("a"), 5, 5, 5)
ENDS_ROLLOUT = (
    "ends its staged rollout: the proven template replaces the pods of the target at once"
)
WITHOUT_STAGES = (
    "the rollout policy replaces its pods without stages: the template was proved before"
)
ENDS = FieldChange(("metadata", "annotations", keys.TARGET), "agent-2", None)
BEGINS = FieldChange(("metadata", "annotations", keys.TARGET), None, "agent-2")


def on_delete(type: str = "OnDelete", **annotations: str) -> Manifest:
    one = manifest(updateStrategy={"type": type} if type else {})
    return replace(one, body={**one.body, "metadata": {"annotations": annotations}})


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (Change(Operation.UPDATE, KEY, on_delete(""), rollout=ROLLS), ["new revision 6"]),
        (
            Change(Operation.UPDATE, KEY, on_delete(), rollout=ROLLS),
            ["new revision 6", "restarts nothing until a pod is deleted (OnDelete)"],
        ),
        (
            Change(Operation.UPDATE, KEY, on_delete(**{keys.ROLLOUT_POLICY: "{}"}), rollout=ROLLS),
            [
                "new revision 6",
                WITHOUT_STAGES,
            ],
        ),
        (
            Change(Operation.UPDATE, KEY, on_delete(), rollout=STAYS),
            ["no new revision: no pod restarts"],
        ),
        (Change(Operation.CREATE, KEY, on_delete(), rollout=ROLLS), []),
        (
            Change(Operation.UPDATE, KEY, on_delete(), rollout=ROLLS, stages=STAGES),
            ["new revision 6", "staged rollout in 2 stages: canary, rest"],
        ),
        (
            Change(Operation.UPDATE, KEY, on_delete(), rollout=STAYS, stages=STAGES),
            ["staged rollout in 2 stages: canary, rest"],
        ),
        (
            Change(
                Operation.UPDATE,
                KEY,
                on_delete("RollingUpdate"),
                rollout=ROLLS,
                nodes=NodeImpact(("a",), ("b",), ("c",)),
            ),
            [
                "new revision 6",
                "gains 1 node: a",
                "loses 1 node: b",
                "restarts 1 node: c, at most 1 at a time, so in 1 batch",
            ],
        ),
        (
            Change(Operation.UPDATE, KEY, on_delete(), (ENDS,), STAYS),
            [ENDS_ROLLOUT],
        ),
        (
            Change(Operation.UPDATE, KEY, on_delete(), (BEGINS,), STAYS),
            ["no new revision: no pod restarts"],
        ),
    ],
)
def test_the_lines_about_pods(change: Change, lines: list[str]) -> None:
    fields = len(change.fields)
    found = list(printers.change_lines([change]))
    assert [line.strip() for line in found[1 + fields :]] == lines


def test_a_plan_in_markdown_has_the_stages_of_its_rollouts() -> None:
    change = Change(Operation.UPDATE, KEY, on_delete(), rollout=ROLLS, stages=STAGES)
    plan = replace(planned(), changes=(change,), refusals=(), held=())
    text = printers.as_markdown(plan)
    stages = "```text\nstaged rollout in 2 stages: canary, rest\n```"
    assert f"\n\n`{KEY}`:\n\n{stages}" in text
    plain = replace(plan, changes=(replace(change, stages=None),))
    assert "```" not in printers.as_markdown(plain)
    assert "<details>" not in printers.as_markdown(plain)


def test_an_empty_line_separates_changes_and_refusals_from_the_summary() -> None:
    change = Change(Operation.UPDATE, KEY, on_delete(), rollout=ROLLS)
    refusal = Skipped(SkipReason.HELD, "it is held", KEY)
    plan = replace(planned(), changes=(), refusals=(), held=())
    assert printers.as_text(plan).startswith("Source: ")
    for more in ({"changes": (change,)}, {"refusals": (refusal,)}):
        text = printers.as_text(replace(plan, **more))
        assert "\n\nSource: " in text


NODES = tuple(f"n{index}" for index in range(8))
PREVIEW = StagedPreview(
    stages=(
        StagePreview("canary", NODES[:1], 0.0, 600.4, ("approval of team-a", "gate flow")),
        StagePreview("rest", NODES[1:], 600.4),
        StagePreview("none", ()),
    ),
    seconds=7200.6,
    cap=1200,
    parked=("n8", "n9"),
    start=30.4,
    stop=5.5,
)
POOLS = Census((), pools=dict.fromkeys((*NODES, *PREVIEW.parked), "small"))


def lines(preview: StagedPreview, census: Census | None = None) -> list[str]:
    return list(printers.staged_lines(preview, census))


def test_the_stages_their_first_nodes_and_their_times() -> None:
    assert lines(PREVIEW) == [
        (
            "staged rollout of 8 nodes in 3 stages, about 2.0 h without faults "
            "(a pod starts in 30 s and stops in 6 s), at most 1,200 at risk:"
        ),
        "  canary: 1 node: n0; from 0 s to 10 min; waits for approval of team-a, gate flow",
        "  rest: 7 nodes: n1, n2, n3, n4, n5 and 2 more; from 10 min",
        "  none: 0 nodes",
        "  parked until they are well again: 2 nodes: n8, n9",
    ]
    assert lines(PREVIEW, POOLS) == lines(PREVIEW)


def test_declared_nodes_have_no_names() -> None:
    found = lines(PREVIEW, replace(POOLS, declared=True))
    assert found[1].startswith("  canary: 1 node of pool small; from 0 s")
    assert found[2] == "  rest: 7 nodes of pool small; from 10 min"
    assert found[-1].endswith("2 nodes of pool small")


def test_a_rollout_without_an_end_or_without_nodes() -> None:
    endless = replace(PREVIEW, seconds=None, parked=())
    assert lines(endless)[0].startswith(
        "staged rollout of 8 nodes in 3 stages, of unknown length without faults (a pod starts"
    )
    assert len(lines(endless)) == 4
    empty = StagedPreview((StagePreview("canary", ()), StagePreview("rest", ())), 0.0, 1)
    assert lines(empty) == ["staged rollout in 2 stages: canary, rest"]


def test_as_json() -> None:
    found = printers.staged_json(PREVIEW, POOLS)
    assert found == printers.staged_json(PREVIEW, None)
    assert found == {
        "seconds": 7201,
        "estimated": False,
        "cap": 1200,
        "podStart": 30.4,
        "podStop": 5.5,
        "parked": ["n8", "n9"],
        "stages": [
            {
                "name": "canary",
                "count": 1,
                "nodes": ["n0"],
                "begins": 0,
                "ends": 600,
                "waits": ["approval of team-a", "gate flow"],
                "takenFrom": None,
            },
            {
                "name": "rest",
                "count": 7,
                "nodes": list(NODES[1:]),
                "begins": 600,
                "ends": None,
                "waits": [],
                "takenFrom": None,
            },
            {
                "name": "none",
                "count": 0,
                "nodes": [],
                "begins": None,
                "ends": None,
                "waits": [],
                "takenFrom": None,
            },
        ],
    }
    declared = printers.staged_json(replace(PREVIEW, seconds=None), replace(POOLS, declared=True))
    assert declared["seconds"] is None
    assert declared["parked"] == []
    assert [one["nodes"] for one in declared["stages"]] == [[], [], []]
    assert [one["count"] for one in declared["stages"]] == [1, 7, 0]
