"""A rendered object laid over its template: which line, and which value, each of its values has."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.objects import Path
from gitops_ds.yaml.provenance import helm_template
from gitops_ds.yaml.provenance.helm_template import ChartValues

VALUES = {"a": 1, "deep": {"list": [{"x": "y"}], "on": True}, "empty": {}, "name": "n"}
LAYERS = [ChartValues({"a": 2}, "own.yaml", ("helm", "values")), ChartValues(VALUES, "values.yaml")]


def place_of(template: str, value: Any, path: Path) -> str:
    """The effective source for a path as `line`, or as `file:path` of a value."""
    places = helm_template.places(template, "t.yaml", [value], LAYERS)[0]
    pointer = next(
        places[path[:length]] for length in range(len(path), -1, -1) if path[:length] in places
    )[0]
    return (
        str(pointer.line) if pointer.line else f"{pointer.file}:{'.'.join(map(str, pointer.path))}"
    )


@pytest.mark.parametrize(
    ("template", "value", "path", "expected"),
    [
        ("k: v\n", {"k": "v"}, ("k",), "1"),
        ("k: {{ .Values.a }}\n", {"k": 2}, ("k",), "own.yaml:helm.values.a"),
        ('k: "{{ .Values.a }}"\n', {"k": "2"}, ("k",), "own.yaml:helm.values.a"),
        ("k: {{ $.Values.a | quote }}\n", {"k": "2"}, ("k",), "own.yaml:helm.values.a"),
        # Printed, but not what the value is: the template changed it.
        ("k: {{ add .Values.a 1 }}\n", {"k": 3}, ("k",), "1"),
        ("k: x-{{ .Values.a }}\n", {"k": "x-2"}, ("k",), "1"),
        ("k: {{ .Values.no | default 5 }}\n", {"k": 5}, ("k",), "1"),
        ("k:\n  {{- toYaml .Values.deep | nindent 2 }}\n",
         {"k": VALUES["deep"]}, ("k", "on"), "values.yaml:deep.on"),
        ("k: {{ toJson .Values.deep }}\n",
         {"k": VALUES["deep"]}, ("k", "list", 0, "x"), "values.yaml:deep.list.0.x"),
        (("k:\n  {{- toYaml .Values.deep.list | nindent 2 "
         "}}\n"), {"k": [{"x": "y"}]}, ("k", 0, "x"), "values.yaml:deep.list.0.x"),
        (("{{ with .Values.deep }}\nk:\n  {{ toYaml . | indent 2 }}\n{{ end "
         "}}\n"), {"k": {"on": 1}}, ("k", "on"), "3"),
        (("{{ with .Values.deep }}\nk:\n  {{ toYaml . }}\n{{ end "
         "}}\n"), {"k": {"on": True}}, ("k", "on"), "values.yaml:deep.on"),
        (("k:\n  f: 1\n  {{- toYaml .Values.deep | nindent 2 "
         "}}\n"), {"k": {"f": 1, "on": True}}, ("k", "on"), "values.yaml:deep.on"),
        # Two branches that write the same key: the one that has it, else their parent.
        ("{{ if .Values.a }}\nk: one\n{{ else }}\nk: two\n{{ end }}\n", {"k": "two"}, ("k",), "4"),
        (("z: 1\nm:\n{{ if .x }}\n  k: {{ .b }}\n{{ else }}\n  k: {{ .c }}\n{{ end "
         "}}\n"), {"z": 1, "m": {"k": 5}}, ("m", "k"), "2"),
        # A list's item by its name, or by its number where nothing can be missing.
        ("l:\n- name: a\n  v: 1\n- name: b\n  v: 2\n",
         {"l": [{"name": "b", "v": 2}]}, ("l", 0, "v"), "5"),
        ("l:\n  - 1\n  - 2\n", {"l": [1, 2]}, ("l", 1), "3"),
        ("l:\n  - 1\n{{ if .x }}\n  - 2\n{{ end }}\n  - 3\n", {"l": [1, 3]}, ("l", 1), "1"),
        (("l:\n{{ range .Values.deep.list }}\n- k: {{ .x }}\n{{ end "
         "}}\n"), {"l": [{"k": "y"}, {"k": "z"}]}, ("l", 1, "k"), "3"),
        # Text on several lines is not a key, and neither is a comment.
        ("t: |\n  k: no\nk: yes\n", {"t": "k: no\n", "k": "yes"}, ("k",), "3"),
        ("{{/*\nk: no\n*/}}\n# k: no\nk: v\n", {"k": "v"}, ("k",), "5"),
        ("k: v\n", {"k": "v", "else": 1}, ("else",), "1"),
    ],
)  # fmt: skip
def test_the_line_or_the_value_of_a_path(
    template: str, value: Any, path: Path, expected: str
) -> None:
    assert place_of(template, value, path) == expected


def test_the_documents_of_a_template_are_distinguished_by_kind_or_number() -> None:
    template = "kind: A\nk: 1\n---\n{{ if .x }}\nkind: B\nk: 2\n{{ end }}\n---\nkind: C\nk: 3\n"
    places = helm_template.places(
        template, "t.yaml", [{"kind": "A", "k": 1}, {"kind": "C", "k": 3}], []
    )
    assert [each[("k",)][0].line for each in places] == [2, 10]


@pytest.mark.parametrize(
    "template",
    [
        "",
        "{{",
        "- - - a: b",
        "}}: {{ end }}{{ end }}",
        "a:\n b:\n  c\n d: {{ else }}",
        "\t: x\n-\n-",
    ],
)
def test_no_template_is_too_odd(template: str) -> None:
    assert helm_template.places(
        template, "t.yaml", [{"a": [{"b": None}], "": {}}, None, "x", []], LAYERS
    )
