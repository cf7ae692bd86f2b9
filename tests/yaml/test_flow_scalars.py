"""A flow collection may hold scalars with colons, as kubectl reads them."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.yaml import parser

READ = [
    (b"a: {image: foo:1, b: x}", {"a": {"image": "foo:1", "b": "x"}}),
    (b"a: [c:d, 'e:f', \"g:h\"]", {"a": ["c:d", "e:f", "g:h"]}),
    (
        b"helm: {chart: oci://host/x?y=z, version: 1.2.3}",
        {"helm": {"chart": "oci://host/x?y=z", "version": "1.2.3"}},
    ),
    (b'a: {"k":1, "l":foo:2}', {"a": {"k": 1, "l": "foo:2"}}),
    (b"x: 1\n---\na: {t: 12:30:45}", {"a": {"t": "12:30:45"}}),
    (b"a: {b: &x http://h:80/p, c: *x}", {"a": {"b": "http://h:80/p", "c": "http://h:80/p"}}),
]


@pytest.mark.parametrize(("text", "value"), READ)
def test_a_colon_inside_a_flow_scalar_is_part_of_it(text: bytes, value: Any) -> None:
    parsed = parser.read("f.yaml", text)
    assert parsed.documents[-1].value == value


def test_positions_stay() -> None:
    data = b"a: {image: foo:1, b: x}"
    assert str(parser.place("f", data, 0, ("a", "b"))) == "f:1:22"


def test_invalid_yaml_stays_rejected() -> None:
    assert parser.read("f", b"a: {b: c:d").findings[0].rule == "DS001"
