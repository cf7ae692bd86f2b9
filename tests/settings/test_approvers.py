"""Approvers whose approvals can never count are errors of the settings."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.errors import SettingsError
from gitops_ds.core.rollouts.staged_rollout import Approver
from gitops_ds.service.settings import service

KEYS = {"verify": {"allowedSignersFile": "/etc/signers"}}
FORGE = {"forge": {"kind": "github", "tokenFile": "/etc/token"}}


def parse(approvers: Any, **more: Any) -> service.Service:
    repository = {"url": "https://github.com/a/b", "approvers": approvers, **more}
    return service.parse({"repository": repository})


def test_an_approver_has_keys_users_and_teams() -> None:
    approvers = {"keys": ["ada@example.com"], "users": ["Ada"], "teams": ["acme/gpu"]}
    (repository,) = parse({"team-gpu": approvers}, **KEYS, **FORGE).repositories
    assert repository.approvers["team-gpu"].named("team-gpu") == Approver(
        "team-gpu",
        frozenset({"ada@example.com"}),
        frozenset({"ada"}),
        frozenset({"acme/gpu"}),
    )


def test_the_options_of_an_apply_name_the_approvers() -> None:
    parsed = parse({"team-gpu": {"keys": ["SHA256:x"]}}, **KEYS)
    (repository,) = parsed.repositories
    assert parsed.apply_options_of(repository).approvers == {"team-gpu"}


@pytest.mark.parametrize(
    ("approver", "more", "message"),
    [
        ({}, {**KEYS, **FORGE}, "needs keys, users or teams"),
        ({"keys": ["a"]}, FORGE, "no key is trusted"),
        ({"users": ["a"]}, KEYS, "need repository.forge"),
        ({"teams": ["a/b"]}, KEYS, "need repository.forge"),
        ({"teams": ["/"]}, FORGE, "is not a team"),
        ({"keys": ["a"]}, {}, "no key is trusted"),
    ],
)
def test_an_approver_that_can_never_approve_is_refused(
    approver: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        parse({"team-gpu": approver}, **more)
