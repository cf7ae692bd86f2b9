"""The bytes of a revision's data are upstream's; its hash has upstream's form; equal templates are
equal.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core.objects import Body
from gitops_ds.kube.apimachinery import daemonsets, revisions

GOLDENS: list[tuple[str, Any, bytes]] = [
    (
        "keys by code point, the directive first",
        {"spec": {}, "metadata": {}},
        b'{"$patch":"replace","metadata":{},"spec":{}}',
    ),
    (
        "five characters are escaped",
        {"a": "<&>\u2028\u2029"},
        rb'{"$patch":"replace","a":"\u003c\u0026\u003e\u2028\u2029"}',
    ),
    (
        "all others are not",
        {"a": "é/日本\x7f'"},
        '{"$patch":"replace","a":"é/日本\x7f\'"}'.encode(),
    ),
    (
        "as Go writes control characters",
        {"a": '\n\t\r"\\'},
        rb'{"$patch":"replace","a":"\n\t\r\"\\"}',
    ),
    (
        "nested empties stay",
        {"b": {"c": {}, "d": []}, "a": None},
        b'{"$patch":"replace","a":null,"b":{"c":{},"d":[]}}',
    ),
    (
        "numbers and truths are plain",
        {"n": 65535, "t": True},
        b'{"$patch":"replace","n":65535,"t":true}',
    ),
    (
        "a key beyond the basic plane sorts last",
        {"\U0001f600": 1, "\uffff": 2},
        '{"$patch":"replace","\uffff":2,"\U0001f600":1}'.encode(),
    ),
]


@pytest.mark.parametrize(
    ("template", "expected"), [row[1:] for row in GOLDENS], ids=[row[0] for row in GOLDENS]
)
def test_the_data_is_written_as_upstream_writes_it(template: Any, expected: bytes) -> None:
    assert (
        revisions.canonical(revisions.data(template)) == b'{"spec":{"template":' + expected + b"}}"
    )


@pytest.mark.parametrize(
    ("tail", "number", "text"),
    [
        (b"", 3214735720, "7658c79c64"),
        (bytes(8), 1009892968, "544fdf6fbd"),
        (b"\x01" + bytes(7), 2576555401, "69cb999845"),
    ],
)
def test_the_hash_and_its_letters_are_those_of_the_test_vectors(
    tail: bytes, number: int, text: str
) -> None:
    assert revisions.fnv1a(b"foobar" + tail) == number
    assert revisions.safe_text(str(number)) == text


def test_a_collision_count_gives_another_hash_and_zero_is_not_none() -> None:
    hashes = [revisions.hash_of({"spec": {"a": 1}}, count) for count in (None, 0, 1, 2)]
    assert len(set(hashes)) == 4
    assert all(len(hash) <= 10 and set(hash) <= set("456789bcdf") for hash in hashes)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"metadata": {"creationTimestamp": None}}, {"metadata": {}}, True),
        ({"spec": {"a": [{"b": None}]}}, {"spec": {"a": [{}]}}, True),
        ({"spec": {"a": {}}}, {"spec": {}}, False),
        ({"spec": {"a": [1, 2]}}, {"spec": {"a": [1]}}, False),
        ({"spec": {"a": "1"}}, {"spec": {"a": 1}}, False),
    ],
)
def test_null_is_absent_and_nothing_else_is(one: Any, other: Any, same: bool) -> None:
    assert revisions.same_template(one, other) is same
    assert revisions.same_template(other, one) is same


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,  # larger values take 0.2 s of CPU each to be drawn
)


@given(st.dictionaries(st.text().filter(lambda key: key != "$patch"), json_values, max_size=5))
@pytest.mark.slow
def test_the_data_restores_the_template(template: dict[str, Any]) -> None:
    assert revisions.template_of({"data": revisions.data(template)}) == template
    assert revisions.same_template(template, template)


@pytest.mark.parametrize(
    "data", [None, {}, {"spec": None}, {"spec": {"template": None}}, "text", {"spec": []}]
)
def test_data_without_a_template_is_not_a_revision(data: Any) -> None:
    assert revisions.revision_of({"metadata": {"name": "r"}, "data": data}) is None


def test_a_new_revision_is_named_by_its_hash() -> None:
    body: Body = {
        "metadata": {"name": "agent", "namespace": "n", "uid": "u", "annotations": {"a": "b"}},
        "spec": {"template": {"metadata": {"labels": {"app": "x"}}}},
        "status": {"collisionCount": 0},
    }
    made = revisions.new(daemonsets.daemonset_of(body), 3)
    hash = revisions.hash_of(body["spec"]["template"], 0)
    assert made["metadata"]["name"] == f"agent-{hash}"
    assert made["metadata"]["labels"] == {"app": "x", "controller-revision-hash": hash}
    assert made["metadata"]["annotations"] == {"a": "b"}
    assert made["revision"] == 3
