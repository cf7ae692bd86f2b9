"""Secrets are found by the form that their issuer documents, in any surroundings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core.redaction import patterns, texts

# joined, so that a scanner of this repository finds no secret
CERTAIN = [
    "-----BEGIN " + "PRIVATE KEY-----\nMIIEvQ",
    "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEvQ",
    "eyJhbGciOiJIUzI1NiIsInR5" + ".eyJzdWIiOiIxMjM0NTY3ODkw" + ".SflKxwRJSMeKKF2QT4fwpM",
    "postgres://agent:hunter2" + "@db:5432/agents",
]
BEFORE = st.sampled_from(["", "a ", "key: ", "x\n", '"', "://", "@", "-p ", "eyJ ", "BEGIN "])


@given(
    BEFORE, st.from_regex(patterns.ISSUED, fullmatch=True), st.sampled_from(["", " a", "\n", '"'])
)
def test_an_issued_key_is_found_and_hidden(before: str, key: str, after: str) -> None:
    assert patterns.certain("anything", before + key + after)
    assert key not in texts.content(before + key + after)


@pytest.mark.parametrize("secret", CERTAIN)
@given(before=BEFORE)
def test_a_certain_secret_is_found_and_hidden(secret: str, before: str) -> None:
    assert patterns.certain("anything", before + secret)
    assert secret not in texts.content(before + secret)


def test_what_sops_encrypted_is_hidden() -> None:
    assert texts.content("a: ENC[AES256_GCM,data:abcdefgh=,iv:x]") == f"a: {patterns.HIDDEN}"


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("DB_PASSWORD", True),
        ("api-key", True),
        ("token", True),
        ("TOKEN_FILE", False),
        ("a", False),
    ],
)
def test_a_value_under_the_name_of_a_secret(name: str, is_secret: bool) -> None:
    assert patterns.certain(name, "correct-horse") is is_secret
    assert not patterns.certain(name, "$(FROM_ELSEWHERE)")
