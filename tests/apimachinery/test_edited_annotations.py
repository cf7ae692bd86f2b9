"""The annotations of a rollout with any text of another writer: a policy is invalid with a reason,
every other one states nothing. An error of another class would end what reads all DaemonSets.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from gitops_ds.core.rollouts.staged_rollout import RolloutRecord, RolloutTarget
from gitops_ds.kube.apimachinery import daemonsets
from gitops_ds.rollouts.state import (
    halted_templates,
    keys,
    proofs,
    rollout_annotations,
    target_revisions,
)
from tests.plan.world import daemonset

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "policy",
    [
        "true",
        DEEP,
        f'{{"any": {DEEP}}}',
        '{"stages": true}',
        '{"stages": 3}',
        '{"stages": {"name": "a"}}',
        '{"stages": [[]]}',
        '{"stages": [{"name": {}}]}',
    ],
)
def test_a_policy_of_another_writer_is_valid_or_a_value_error(policy: str) -> None:
    body = daemonset("agent", "example.com/agent:1")
    body["metadata"]["annotations"] = {keys.ROLLOUT_POLICY: f'{{"policy": {policy}}}'}
    with pytest.raises(ValueError):
        target_revisions.policy_of(daemonsets.daemonset_of(body))


def test_the_reason_of_a_hold_is_one_short_line() -> None:
    halted = {"hash": "a", "commit": "", "at": 1.0, "message": "\x1b[31m\n" + "x" * 100_000}
    target = RolloutTarget("a", {}, hashes=frozenset({"a"}))
    reason = halted_templates.hold_reason({keys.HALTED: json.dumps([halted])}, target)
    assert reason.startswith("this template was halted before: \\x1b[31m")
    assert reason.isprintable()
    assert len(reason) < 500


@pytest.mark.parametrize("text", ["", "no", "[]", "3", DEEP, json.dumps({"at": "x"})])
@pytest.mark.parametrize(
    ("read", "nothing"),
    [
        (lambda text: halted_templates.parse({keys.HALTED: text}), ()),
        (lambda text: proofs.in_force({keys.PROVEN: text}), None),
        (target_revisions.decoded, RolloutRecord()),
        (rollout_annotations.decoded_approvals, ()),
    ],
)
def test_another_annotation_of_another_writer_states_nothing(
    read: Callable[[str], object], nothing: object, text: str
) -> None:
    assert read(text) == nothing
    assert read(f'[{{"any": {DEEP}}}]') == read(f'{{"any": {DEEP}}}') == nothing
