"""Agents that are suspended by the annotation of their live DaemonSet."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.change import Change, Operation
from gitops_ds.core.objects import Body, Digest, Key, key_of
from gitops_ds.core.sources.bundle import Manifest, Origin, Pointer
from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import refusals
from tests.plan.world import config_map, daemonset


def change(body: Body, agent: str, operation: Operation = Operation.UPDATE) -> Change:
    return Change(operation, key_of(body), manifest(body, agent))


def manifest(body: Body, agent: str) -> Manifest:
    return Manifest(key_of(body), body, Digest("digest"), Origin(Pointer("a.yaml", 0, ())), agent)


def suspended(value: str | None = "true", *, by_git: bool = False) -> dict[str, Any]:
    body = daemonset()
    if value is not None:
        body["metadata"]["annotations"] = {names.SUSPEND: value}
    if by_git:
        fields = {"f:metadata": {"f:annotations": {f"f:{names.SUSPEND}": {}}}}
        entry = {"manager": names.FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields}
        body["metadata"]["managedFields"] = [entry]
    return body


def skipped(changes: list[Change], live: Body, *, live_annotations: bool = True) -> list[Key]:
    skips = refusals.of_suspended(changes, {key_of(live): live}, live_annotations=live_annotations)
    return [skip.key for skip in skips if skip.key is not None]


AGENT = key_of(daemonset())


def test_all_objects_of_a_suspended_agent_are_skipped_and_those_of_others_are_not() -> None:
    mine, other = config_map("mine"), config_map("other")
    changes = [change(daemonset(), "a"), change(mine, "a"), change(other, "b")]
    assert skipped(changes, suspended()) == [AGENT, key_of(mine)]


@pytest.mark.parametrize("value", [None, "", "false", "yes"])
def test_another_value_suspends_nothing(value: str | None) -> None:
    assert skipped([change(daemonset(), "a")], suspended(value)) == []


def test_a_delete_and_an_object_without_agent_are_skipped_by_their_key() -> None:
    delete = Change(Operation.DELETE, AGENT, None)
    assert skipped([delete], suspended("True")) == [AGENT]
    assert skipped([change(daemonset(), ""), change(config_map("c"), "")], suspended()) == [AGENT]


def test_an_unchanged_object_is_not_skipped() -> None:
    assert skipped([change(daemonset(), "a", Operation.KEEP)], suspended()) == []


def test_git_resumes_only_the_suspensions_of_git() -> None:
    again = change(suspended(), "a")
    resumes = change(daemonset(), "a")
    assert skipped([resumes], suspended(by_git=True)) == []
    assert skipped([again], suspended(by_git=True)) == [AGENT]
    assert skipped([replace(resumes, operation=Operation.DELETE)], suspended()) == [AGENT]


def test_the_message_has_the_reason_of_the_suspension() -> None:
    live, mine = suspended(), config_map("mine")
    live["metadata"]["annotations"][names.SUSPEND_REASON] = "incident\n42"
    changes = [change(daemonset(), "a"), change(mine, "a")]
    messages = [one.message for one in refusals.of_suspended(changes, {AGENT: live})]
    assert messages[0].startswith(f"{AGENT} is unchanged: it is suspended")
    assert messages[1].startswith(f"{key_of(mine)} is unchanged: {AGENT} is suspended")
    for one in refusals.of_suspended(changes, {AGENT: live}):
        assert one.message.endswith(" is suspended (`gitops-ds resume agent`): incident\\x0a42")
    (one,) = refusals.of_suspended(changes[:1], {AGENT: suspended()})
    assert one.message.endswith(" is suspended (`gitops-ds resume agent`)")


def test_without_live_annotations_only_git_suspends() -> None:
    again = change(suspended(), "a")
    assert skipped([again], suspended(), live_annotations=False) == []
    assert skipped([again], suspended(by_git=True), live_annotations=False) == [AGENT]
