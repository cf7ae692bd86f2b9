"""Replies of an API server that refuses a request."""

from __future__ import annotations

import json

import pytest

from gitops_ds.client import status_errors

ACCOUNT = "system:serviceaccount:t2:deployer"


@pytest.mark.parametrize(
    ("user", "advice"),
    [
        (ACCOUNT, f"grant that permission to {ACCOUNT}"),
        ("service", "grant that permission to the account of KUBECONFIG"),
    ],
)
def test_advice_names_the_account_that_lacks_the_right(user: str, advice: str) -> None:
    message = f'services "s" is forbidden: User "{user}" cannot patch resource "services"'
    body = json.dumps({"kind": "Status", "reason": "Forbidden", "message": message}).encode()
    error = status_errors.error_for(403, body, None, "KUBECONFIG", ACCOUNT)
    assert advice in str(error)
