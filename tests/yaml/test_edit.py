"""An edit changes its value and nothing else in the file."""

from __future__ import annotations

import pytest

from gitops_ds.yaml import edit as yaml_edit
from gitops_ds.yaml import parser
from gitops_ds.yaml.edit import Edit

FILE = b"""\
# The shipper of every node's logs.
apiVersion: apps/v1
kind: DaemonSet   # one a node
metadata: {name: agent, namespace: "logging"}
spec:
  template:
    spec:
      containers:
        - name: agent
          image: 'example.com/agent:1'  # bump me
          args: [--a, "--b=c"]
          env:
            - name: LEVEL
              value: "info"

        # the sidecar
        - name: sidecar
          image: example.com/sidecar:2
"""
IMAGE = ("spec", "template", "spec", "containers", 0, "image")


def test_a_scalar_is_replaced_in_its_own_quotes_and_nothing_else_moves() -> None:
    edited = yaml_edit.apply(FILE, [Edit(0, IMAGE, "example.com/agent:2")])
    assert edited == FILE.replace(b"agent:1'", b"agent:2'")


def test_no_edit_leaves_every_byte() -> None:
    assert yaml_edit.apply(FILE, []) == FILE


def test_an_entry_is_removed_and_its_siblings_stay_in_place() -> None:
    edited = yaml_edit.apply(
        FILE, [Edit(0, (*IMAGE[:-1], "args", 0), None), Edit(0, (*IMAGE[:-1], "args", 1), "--z")]
    )
    assert parser.read("f", edited).documents[0].value["spec"]["template"]["spec"]["containers"][0][
        "args"
    ] == ["--z"]


@pytest.mark.parametrize(
    "text", ["yes", "0644", "1e3", "null", "1.10", "a: b", "# no", "12:30:45", "x"]
)
def test_a_text_stays_a_text(text: str) -> None:
    edited = yaml_edit.apply(FILE, [Edit(0, (*IMAGE[:-1], "workingDir"), text)])
    assert (
        parser.read("f", edited)
        .documents[0]
        .value["spec"]["template"]["spec"]["containers"][0]["workingDir"]
        == text
    )


@pytest.mark.parametrize(
    ("data", "edit"), [(b"a: [", Edit(0, ("a",), 1)), (FILE, Edit(0, ("spec", "nope", "x"), 1))]
)
def test_an_impossible_edit_is_reported(data: bytes, edit: Edit) -> None:
    with pytest.raises(ValueError, match=r"."):
        yaml_edit.apply(data, [edit])


def test_windows_line_ends_and_several_documents_stay() -> None:
    data = b"a: 1\r\n---\r\nb: 2 # two\r\n"
    assert yaml_edit.apply(data, [Edit(1, ("b",), 3)]) == b"a: 1\r\n---\r\nb: 3 # two\r\n"


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        (b"a: x # c", "z", b"a: z # c"),
        (b"a: 'x'", "it's", b"a: 'it''s'"),
        (b'a: "x"', "y", b'a: "y"'),
        (b"a: x", "yes", b'a: "yes"'),
        (b"a: {b: x, c: 1}", "y: z", b'a: {b: "y: z", c: 1}'),
        (b"a: 1", 2, b"a: 2"),
        (b"a: on", False, b"a: false"),
        (b"a:   x", "example.com/i:2", b"a:   example.com/i:2"),
    ],
)
def test_a_scalar_is_written_over_in_place(old: bytes, value: object, new: bytes) -> None:
    path = ("a", "b") if b"{" in old else ("a",)
    assert yaml_edit.apply(old, [Edit(0, path, value)]) == new


def test_mixed_indentation_stays_as_it_is() -> None:
    data = b"a:\n- x: 1\n  y:\n      - 2\n\nb: c\n"
    assert yaml_edit.apply(data, [Edit(0, ("b",), "d")]) == data.replace(b"b: c", b"b: d")
