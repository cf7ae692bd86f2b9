"""What is written reads back the same, by kubectl's rules (YAML 1.1-like) and by YAML 1.2's."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gitops_ds.yaml import parser, writer
from tests.yaml.test_kubectl_format import LINES, TEXTS

TRICKY = [*TEXTS.split("|"), *LINES, "|", '"a"', "\x85", "\ufeffa", "x" * 200, "a" + " b" * 100]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(TRICKY),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


def by_kubectls_rules(text: str) -> Any:
    parsed = parser.read("x.yaml", text.encode())
    assert parsed.findings == ()
    (document,) = parsed.documents
    return document.value


def by_yaml_1_2(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(io.StringIO(text))


@pytest.mark.parametrize("read", [by_kubectls_rules, by_yaml_1_2])
@pytest.mark.parametrize("text", TRICKY)
def test_a_tricky_text_stays_a_text(text: str, read: Any) -> None:
    value = {"a": text, "list": [text, [text], {"b": text}]}
    assert read(writer.dump(value)) == value


@given(value=st.dictionaries(st.text(max_size=8), VALUES, max_size=4))
def test_any_value_reads_back_the_same(value: dict[str, Any]) -> None:
    assert by_kubectls_rules(writer.dump(value)) == value
