"""How a plan names nodes, the pace of a rollout, values and long lists."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gitops_ds.model import names
from gitops_ds.model.change import Change, FieldChange, Operation, Rollout
from gitops_ds.model.objects import Digest, Key
from gitops_ds.model.sources.bundle import Manifest
from gitops_ds.plan import apply_order, guard_limits, planner, printers, tracking_labels
from gitops_ds.plan.tracking_labels import Stamp
from tests.plan.test_show import planned

KEY = Key("apps", "DaemonSet", "default", "agent")


def manifest(agent: str = "agent", *needs: str, **spec: Any) -> Manifest:
    written = next(change.manifest for change in planned().writes if change.manifest)
    body = {"spec": spec}
    return dataclasses.replace(
        written, key=KEY, body=body, digest=Digest(""), agent=agent, depends_on=needs
    )


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
        ({"maxUnavailable": "1%"}, 0, "at most 1 at a time, so in 0 batches"),
    ],
)
def test_the_pace_of_a_rollout_is_that_of_its_budget(
    budget: dict[str, Any], nodes: int, words: str
) -> None:
    assert printers._pace(rolling(**budget), nodes) == words


def test_many_nodes_are_named_by_the_first_and_their_number() -> None:
    most = printers.SHOWN_NODES
    some = [f"n{index}" for index in range(most + 2)]
    assert printers._nodes(some[:1]) == "1 node: n0"
    assert printers._nodes(some[:most]).endswith(f", n{most - 1}")
    assert printers._nodes(some).endswith(f"n{most - 1} and 2 more")


def test_many_objects_are_named_by_the_first_and_their_number() -> None:
    most = guard_limits.SHOWN
    some = [f"o{index}" for index in range(most + 3)]
    assert guard_limits.shown(some[:most]) == ", ".join(some[:most])
    assert guard_limits.shown(some) == f"{', '.join(some[:most])} and 3 more"
    assert [guard_limits._count(some[:number]) for number in (0, 1, 2)] == [
        "0 objects",
        "1 object",
        "2 objects",
    ]


def test_a_long_value_is_cut_and_none_is_named() -> None:
    assert printers._value(None) == "(none)"
    assert printers._value("a" * 158) == f'"{"a" * 158}"'
    assert printers._value("a" * 159) == f'"{"a" * 156}...'


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


def test_an_agent_follows_all_agents_that_it_depends_on() -> None:
    manifests = [
        manifest("a"),
        manifest("b", "a"),
        manifest("c", "a", "b"),
        manifest("d", "elsewhere"),
        manifest("e", "f"),
        manifest("f", "e"),
        manifest("g", "g"),
        manifest(""),
    ]
    waves = apply_order.waves(manifests)
    assert {name: waves[name] for name in "abcdg"} == {"a": 0, "b": 1, "c": 2, "d": 0, "g": 0}
    assert waves.keys() == set("abcdefg")


def test_only_updates_of_the_spec_of_daemonsets_may_move_pods() -> None:
    spec, label = FieldChange(("spec", "x"), 1, 2), FieldChange(("metadata", "labels", "x"), 1, 2)
    plain, other = Key("", "ConfigMap", "default", "a"), dataclasses.replace(KEY, name="other")
    changes = (
        Change(Operation.UPDATE, KEY, None, (label, spec)),
        Change(Operation.UPDATE, other, None, (label,)),
        Change(Operation.UPDATE, plain, None, (spec,)),
        Change(Operation.CREATE, other, None, (spec,)),
        Change(Operation.KEEP, other, None, (spec,)),
    )
    assert planner.moving(dataclasses.replace(planned(), changes=changes)) == (KEY,)


def test_only_an_object_taken_over_from_another_owner_has_its_uid() -> None:
    stamp = Stamp("owner", repository="r", commit="c", subject="s", uid="u")
    annotations = tracking_labels.stamped(manifest(), stamp)["metadata"]["annotations"]
    assert names.TEMPLATE_UID not in annotations
    assert (annotations[names.REPOSITORY], annotations[names.COMMIT]) == ("r", "c")
    assert annotations[names.CHANGE_CAUSE] == "s"
    bare = tracking_labels.stamped(manifest(), Stamp("owner", tracks=False))["metadata"]
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
