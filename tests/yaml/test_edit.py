"""An edit changes its value, or adds or removes its own lines: every other byte, and every comment
next to it, stays.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.yaml import edit as yaml_edit
from gitops_ds.yaml import parser, style
from gitops_ds.yaml.edit import Edit

FILE = """\
# The shipper of every node's logs.
apiVersion: apps/v1
kind: DaemonSet   # one a node
metadata: {name: agent,   namespace: "logging"}
spec:
    revisionHistoryLimit: 1   # we never go back

    # What runs on each node.
    template:
        spec:
            tolerations:   # taints
              # the first
              - {operator: Exists, key: a}
              # the second
              - key: node.kubernetes.io/not-ready   # added by the controller
                operator: Exists
              # the third
              - key: b
                operator: Exists
            containers:
            - name: agent   # the main one
              image: 'example.com/agent:1'
              args: [--a,  "--b=c"]
              resources:
              securityContext: {}
              env:
              - {name: LEVEL, value: "info"}
            -   image: example.com/sidecar:2
                name: sidecar

            # who may do what
            serviceAccount: agent
            volumes:
              - name: tmp   # not mounted
                emptyDir: {}
            # the end
"""
POD = ("spec", "template", "spec")


def edited(text: str, *edits: Edit) -> str:
    return yaml_edit.apply(text.encode(), edits).decode()


def gone(*lines: str) -> str:
    """The file without some of its lines."""
    text = FILE
    for line in lines:
        assert text.count(line + "\n") == 1
        text = text.replace(line + "\n", "")
    return text


def test_a_scalar_is_replaced_in_its_own_quotes() -> None:
    path = (*POD, "containers", 0, "image")
    after = edited(FILE, Edit(0, path, "example.com/agent:2"))
    assert after == FILE.replace("agent:1'", "agent:2'")
    assert edited(FILE) == FILE


@pytest.mark.parametrize(
    ("old", "path", "value", "new"),
    [
        ("a: x # c", "a", "z", "a: z # c"),
        ("a: 'x'", "a", "it's", "a: 'it''s'"),
        ('a: "x"', "a", "y", 'a: "y"'),
        ("a: x", "a", "yes", 'a: "yes"'),
        ("a: {b: x, c: 1}", "a.b", "y: z", 'a: {b: "y: z", c: 1}'),
        ("a: 1", "a", 2, "a: 2"),
        ("a: on", "a", False, "a: false"),
        ("a:   x", "a", "example.com/i:2", "a:   example.com/i:2"),
        (
            "a:\n- x: 1\n  y:\n      - 2\n\nb: c\n",
            "b",
            "d",
            "a:\n- x: 1\n  y:\n      - 2\n\nb: d\n",
        ),
    ],
)
def test_a_scalar_is_written_over_in_place(old: str, path: str, value: object, new: str) -> None:
    assert edited(old, Edit(0, tuple(path.split(".")), value)) == new


@pytest.mark.parametrize(
    ("text", "path"), [("a: [", ("a",)), (FILE, ("spec", "nope", "x"))], ids=["syntax", "path"]
)
def test_an_impossible_edit_is_reported(text: str, path: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"."):
        edited(text, Edit(0, path, 1))


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        (("spec", "revisionHistoryLimit"), ["    revisionHistoryLimit: 1   # we never go back"]),
        ((*POD, "tolerations", 0), ["              - {operator: Exists, key: a}"]),
        (
            (*POD, "tolerations", 1),
            [
                (
                    "              - key: node.kubernetes.io/not-ready"
                    "   # added by the controller\n"
                    "                operator: Exists"
                ),
            ],
        ),
        ((*POD, "serviceAccount"), ["            serviceAccount: agent"]),
        ((*POD, "containers", 0, "resources"), ["              resources:"]),
    ],
)
def test_a_removal_deletes_only_its_own_lines(
    path: tuple[str | int, ...], lines: list[str]
) -> None:
    assert edited(FILE, Edit(0, path)) == gone(*lines)


def test_the_first_key_of_a_list_entry_makes_room_for_the_next() -> None:
    there = (
        "            - name: agent   # the main one\n              image: 'example.com/agent:1'\n"
    )
    assert edited(FILE, Edit(0, (*POD, "containers", 0, "name"))) == FILE.replace(
        there, "            - image: 'example.com/agent:1'\n"
    )


def test_the_removal_of_the_only_entry_leaves_an_empty_list() -> None:
    after = edited(FILE, Edit(0, (*POD, "volumes", 0)))
    assert after == FILE.replace("            volumes:\n", "            volumes: []\n").replace(
        "              - name: tmp   # not mounted\n                emptyDir: {}\n", ""
    )


@pytest.mark.parametrize(
    ("index", "after"),
    [(0, '["--b=c"]'), (1, "[--a]")],
)
def test_entries_between_brackets(index: int, after: str) -> None:
    assert edited(FILE, Edit(0, (*POD, "containers", 0, "args", index))) == FILE.replace(
        '[--a,  "--b=c"]', after
    )


@pytest.mark.parametrize(
    ("path", "value", "before", "after"),
    [
        (
            ("metadata", "labels"),
            {"a": "b"},
            'namespace: "logging"}',
            'namespace: "logging", labels: {a: b}}',
        ),
        (
            (*POD, "containers", 0, "securityContext", "readOnly"),
            True,
            "securityContext: {}",
            "securityContext: {readOnly: true}",
        ),
        (
            (*POD, "containers", 0, "imagePullPolicy"),
            "IfNotPresent",
            "image: 'example.com/agent:1'\n",
            "image: 'example.com/agent:1'\n              imagePullPolicy: IfNotPresent\n",
        ),
        (
            (*POD, "containers", 0, "resources", "requests", "cpu"),
            "50m",
            "resources:\n",
            "resources:\n                  requests:\n                      cpu: 50m\n",
        ),
        (
            (*POD, "containers", 0, "env", 1),
            {"name": "OTHER", "value": "yes"},
            '{name: LEVEL, value: "info"}\n',
            (
                '{name: LEVEL, value: "info"}\n              - name: OTHER\n                value: '
                '"yes"\n'
            ),
        ),
        (
            (*POD, "containers", 0, "args", 2),
            "0644",
            '"--b=c"]',
            '"--b=c", "0644"]',
        ),
        (
            (*POD, "containers", 1, "args"),
            ["x"],
            "                name: sidecar\n",
            "                name: sidecar\n                args:\n                - x\n",
        ),
    ],
)
def test_a_new_entry_is_next_to_similar_ones(
    path: tuple[str | int, ...], value: Any, before: str, after: str
) -> None:
    assert FILE.count(before) == 1
    assert edited(FILE, Edit(0, path, value, make=True)) == FILE.replace(before, after)


def test_a_key_gets_another_name_and_keeps_its_place_and_comment() -> None:
    assert edited(
        FILE, Edit(0, (*POD, "serviceAccount"), key="serviceAccountName")
    ) == FILE.replace("serviceAccount:", "serviceAccountName:")
    with pytest.raises(ValueError, match="can't edit"):
        edited(FILE, Edit(0, (*POD, "serviceAccount"), key="volumes"))


def test_many_edits_of_one_file_each_by_the_paths_of_the_file_as_it_was() -> None:
    after = edited(
        FILE,
        Edit(0, (*POD, "tolerations", 0)),
        Edit(0, (*POD, "tolerations", 3), {"key": "c"}),
        Edit(0, (*POD, "tolerations", 2, "operator")),
        Edit(0, (*POD, "tolerations", 1)),
        Edit(0, (*POD, "containers", 0, "resources", "requests", "cpu"), "50m", make=True),
        Edit(0, (*POD, "containers", 0, "resources", "requests", "memory"), "64Mi", make=True),
        Edit(0, (*POD, "containers", 0, "resources", "limits", "memory"), "128Mi", make=True),
    )
    spec = parser.read("f", after.encode()).documents[0].value["spec"]["template"]["spec"]
    assert spec["tolerations"] == [{"key": "b"}, {"key": "c"}]
    assert spec["containers"][0]["resources"] == {
        "requests": {"cpu": "50m", "memory": "64Mi"},
        "limits": {"memory": "128Mi"},
    }
    comments = [line.strip() for line in FILE.splitlines() if line.strip().startswith("#")]
    assert [line.strip() for line in after.splitlines() if line.strip().startswith("#")] == comments


def test_a_file_without_a_last_line_end_and_one_with_windows_line_ends() -> None:
    assert edited("a: 1\nb:\n  c: 2", Edit(0, ("b", "d"), 3)) == "a: 1\nb:\n  c: 2\n  d: 3"
    assert edited("a: 1\r\nb: 2\r\n", Edit(0, ("c",), 3), Edit(0, ("a",))) == "b: 2\r\nc: 3\r\n"
    two = "a: 1\r\n---\r\nb: 2 # two\r\n"
    assert edited(two, Edit(1, ("b",), 3)) == two.replace("2 #", "3 #")


def test_json_stays_json() -> None:
    text = '{\n  "a": [\n    {"b": 1}\n  ],\n  "c": true\n}\n'
    after = edited(text, Edit(0, ("a", 1), {"b": "x"}), Edit(0, ("d",), "y"), Edit(0, ("c",)))
    assert after == '{\n  "a": [\n    {"b": 1},\n    {"b": "x"}\n  ],\n  "d": "y"\n}\n'


def test_block_texts_and_blank_lines_around_them_stay() -> None:
    text = "a:\n  x: |\n    one\n    two\n\n\nb: >-\n  three\n# end\n"
    assert (
        edited(text, Edit(0, ("a", "z"), 1))
        == "a:\n  x: |\n    one\n    two\n  z: 1\n\n\nb: >-\n  three\n# end\n"
    )
    assert edited(text, Edit(0, ("b",))) == "a:\n  x: |\n    one\n    two\n\n\n# end\n"


def test_a_value_shared_by_an_alias_is_not_changed_for_both() -> None:
    text = "a: &x {b: 1}\nc: *x\n"
    with pytest.raises(ValueError, match="alias"):
        edited(text, Edit(0, ("c", "b"), 2))
    assert parser.read("f", edited(text, Edit(0, ("c",))).encode()).documents[0].value == {
        "a": {"b": 1}
    }


@pytest.mark.parametrize("old", ["1", "{x: 1}", "'x'", "[1, 2]"])
@pytest.mark.parametrize("value", [[{}, 1, 1], [[], "x"], [{}, {"a": 1}]])
def test_a_list_that_begins_with_an_empty_collection_takes_the_place_of_a_value_with_a_comment(
    old: str, value: Any
) -> None:
    text = f"a: {old}   # one\nb: 1   # two\n"
    after = edited(text, Edit(0, ("a",), value))
    assert parser.read("f", after.encode()).documents[0].value == {"a": value, "b": 1}
    assert after.endswith("\nb: 1   # two\n")
    assert "# one" in after


keys = st.sampled_from(["a", "b", "c", "d"])
scalars = st.sampled_from(
    [1, True, 1.5, "x", "a: b", "# c", "", "two words", "line\nbreak", "é"]
) | st.sampled_from(["yes", "0644", "1e3", "null", "1.10", "12:30:45"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


def under(value: Any, draw: Any, indent: int) -> str:
    """The text after a key or a dash, in one of the common styles, with comments."""
    pad = " " * indent
    if isinstance(value, dict) and value and draw(st.booleans()):
        body = "".join(
            (f"{pad}# {draw(st.integers(0, 10**6))}\n" if draw(st.booleans()) else "")
            + f"{pad}{key}:{under(item, draw, indent + 2)}"
            for key, item in value.items()
        )
        return f"  # {draw(st.integers(0, 10**6))}\n{body}" if draw(st.booleans()) else f"\n{body}"
    if isinstance(value, list) and value and draw(st.booleans()):
        return "\n" + "".join(f"{pad}-{under(item, draw, indent + 2)}" for item in value)
    return (
        f" {style.flow(value)}"
        + (f"   # {draw(st.integers(0, 10**6))}" if draw(st.booleans()) else "")
        + "\n"
    )


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return found + [deeper for key, item in items for deeper in paths(item, (*path, key))]


@given(st.data())
def test_an_edit_has_its_effect_and_comments_on_lines_of_their_own_stay(
    data: st.DataObject,
) -> None:
    value = data.draw(st.dictionaries(keys, values, min_size=2, max_size=4))
    text = under(value, data.draw, 0).partition("\n")[2] if data.draw(st.booleans()) else ""
    text = text or "".join(f"{key}:{under(item, data.draw, 2)}" for key, item in value.items())
    assert parser.read("f", text.encode()).documents[0].value == value, text
    path = data.draw(st.sampled_from(paths(value)))
    parent: Any = value
    for step in path[:-1]:
        parent = parent[step]
    edit = data.draw(
        st.sampled_from(
            [
                Edit(0, path),
                Edit(0, path, data.draw(values)),
                Edit(
                    0,
                    (*path[:-1], len(parent) if isinstance(parent, list) else "new"),
                    data.draw(values),
                ),
            ]
        )
    )
    after = yaml_edit.apply(text.encode(), [edit])
    expected = copy.deepcopy(value)
    assert parser.read("f", after).documents[0].value == yaml_edit.changed(expected, [edit])
    if edit.value is not None and edit.path != path:  # something was added: nothing may be removed
        own = [line for line in text.splitlines() if line.strip().startswith("#")]
        assert [line for line in after.decode().splitlines() if line.strip().startswith("#")] == own
