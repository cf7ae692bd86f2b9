"""Places found in lines are the places of libyaml's nodes, for every path of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.yaml import fast_path, libyaml, line_places, parser
from tests import profiles
from tests.yaml.test_fast_path import COMMON, MANIFESTS, ROOT


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every path of a value, and of each one step that does not exist, of each kind."""
    yield path
    yield (*path, "missing")
    yield (*path, 99)
    yield (*path, -1)
    yield (*path, "missing", 0)
    match value:
        case dict():
            for key, below in value.items():
                yield from paths(below, (*path, key))
        case list():
            for index, below in enumerate(value):
                yield from paths(below, (*path, index))


def assert_same(data: bytes) -> int:
    """The number of places that were found in lines."""
    count = 0
    for document in range(3):
        for number, body in fast_path.read(data) or ():
            for path in paths(body) if number == document else ():
                for key in (False, True):
                    count += line_places.span(data, document, path, key=key) is not None
                    expected = libyaml.span("f", data, document, path, key=key)
                    assert parser.span("f", data, document, path, key=key) == expected, path
    return count


@pytest.mark.parametrize(
    "text",
    [
        *(text for text in COMMON if ":" in text),
        "a: b\n---\nc:\n  d: e\n\n---\n\nf:\n- g\n",
        "a:\n  b: # why\nc:\n- d:\n  e:\n",
        "a:\n- b:\n  - c:\n    - d\n  e: f\n- g\nh:\n  i:\n  - j\n  k: l",
    ],
)
def test_each_form_of_the_common_syntax(text: str) -> None:
    assert assert_same(text.encode()) > 0


@pytest.mark.sampled
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_manifests_of_the_project(path: Path) -> None:
    assert_same(path.read_bytes())


_SCALARS = st.sampled_from(
    [
        *("x", "'y z'", '"q"', "1", "true", "[]", "{}", "[a, 'b c']", "{d: e, f: 'g'}", ""),
        *("[--x=y, [z]]", "{d: {e: [f]}}", "[{d: e}, f]"),
    ]
)
_KEYS = st.sampled_from(["a", "bb", "c.d/e", "name"])
# what looks like YAML in a text in literal style
_TEXTS = st.lists(
    st.sampled_from(["a: b", "- bb", "# c", "name:", "  a: |", "---", "", "- a: b"]), max_size=3
).map(lambda lines: ["x", *lines])


@st.composite
def blocks(draw: st.DrawFn, indent: int = 0, depth: int = 0) -> str:
    """The text of a mapping."""
    lines = []
    for key in draw(st.lists(_KEYS, min_size=1, max_size=3, unique=True)):
        comment = draw(st.sampled_from(["", " # why", "  "]))
        kinds = ["scalar", "mapping", "list", "text"] if depth < 3 else ["scalar"]
        kind = draw(st.sampled_from(kinds))
        if kind == "text":
            lines.append(f"{' ' * indent}{key}: {draw(st.sampled_from(['|', '|-']))}")
            margin = " " * (indent + draw(st.integers(1, 3)))
            lines.extend(margin + line for line in draw(_TEXTS))
            continue
        if kind == "scalar":
            lines.append(f"{' ' * indent}{key}: {draw(_SCALARS)}{comment}")
            continue
        lines.append(f"{' ' * indent}{key}:{comment}")
        if kind == "mapping":
            lines.append(draw(blocks(indent + draw(st.integers(1, 3)), depth + 1)))
            continue
        column = indent + draw(st.integers(0, 2))
        for _ in range(draw(st.integers(1, 2))):
            if draw(st.booleans()):
                lines.append(f"{' ' * column}- {draw(_SCALARS) or 'z'}{comment}")
            else:
                gap = draw(st.integers(1, 3))
                item = draw(blocks(column + 1 + gap, depth + 1))
                lines.append(f"{' ' * column}-{item[column + 1 :]}")
        lines.extend(draw(st.sampled_from([[], [""], ["  # between"]])))
    return "\n".join(lines)


@given(st.lists(blocks(), min_size=1, max_size=2))
def test_random_documents(documents: list[str]) -> None:
    data = "".join(f"---\n{document}\n" for document in documents).encode()
    assert_same(data)


def test_most_random_documents_are_of_the_common_syntax() -> None:
    """Else the property above would be empty."""
    read = [0, 0]

    @given(blocks())
    def count(text: str) -> None:
        read[fast_path.read(f"{text}\n".encode()) is not None] += 1

    count()
    assert read[1] > 2 * read[0]
    assert sum(read) >= profiles.examples(profiles.DEFAULT_EXAMPLES) // 2
