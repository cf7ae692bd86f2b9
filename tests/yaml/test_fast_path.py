"""Plain YAML read line by line: what libyaml makes of it, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gitops_ds.yaml import fast_path, libyaml

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted(
    path for folder in ("examples-repo", "deploy") for path in (ROOT / folder).rglob("*.yaml")
)
LONG = "x" * 3_000  # more than libyaml accepts as a key


def parsed_text(data: bytes) -> str:
    """Every value with its type and order."""
    parsed = libyaml.read("f", data)
    return repr([(document.index, document.value) for document in parsed.documents]) + "".join(
        f"\n{finding.message}" for finding in parsed.findings
    )


COMMON = [
    "",
    "# nothing\n",
    "a: 1\nb: 1.10\nc: true\nd: ~\ne:\nf: '2'\ng: \"x # y\"\n",
    "a:\n  b:\n    c: d\n  e: f\ng: h\n",
    "a:\n- b\n- c: d\n  e:\n  - f\n  g: h\n-   i: j\n    k: l\nm: x\n",
    "a:\n    - b:\n        - c\n      d: e\n\n    # between\n    - f\ng:\n",
    "a: [b, 'c d', \"e\", 1]\nf: []\ng: {}\nh:\n  - []\n  - [ x , z ] # why\n",
    "# first\n---\n---\na: b\n---\n# nothing\n---\nc: d\n---\n",
    (
        "image: registry.example.com:5000/a/b:1.2@sha256:00 # why\n"
        "args:\n  - --a=b\n  - -c\n  - $(NODE):http://x/?y=z&q\nf: 10%\n"
    ),
    "a: b c  d   \nb:   x\n",
    "a: {b: c}\nd:\n- {e: 1, f: 'g, h' } # i\n- { }\n",
    "a: {b: {c: [d, {e: 1}]}, f: [ ]} # g\nh: [{i: j}, [k, []], {}]\nl:\n- [{}]\n",
    "a: [--b=c, -d, $(E), f@g, 1.5, -1, 10%, h=i+j]\nk: {l: 'm: {n}', o: \"[p]\"}\n",
    "a: |\n  b\n",
    "a: |-\n  b\n\n   c # d\n\n\n# e\nf: g\n",
    "a: |  \n\n    b: c\n      - d\n\n    e\n  # f\ng:\n- |-\n h\n",
    "a:\n- |\n  b\n  \n- c: |\n    d\n\n  e: f\n",
    "a:\n  b: |\n    c\n    \n     \n  d: e\n---\nf: |\n  g\n---\nh: i\n",
    f"a: {LONG}==\nb:\n- {LONG}\n- '{LONG}'\n- [{LONG}, b]\n- {LONG} {LONG} # c\n",
]


@pytest.mark.parametrize("text", COMMON)
def test_the_common_syntax_of_manifests_is_read(text: str) -> None:
    value = fast_path.read(text.encode())
    assert repr(value) == parsed_text(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "a: b\n  c\n",  # one text
        "a: b\n  c: d\n",  # a mistake
        "a: b\na: c\n",
        "a: yes\n",
        "on: b\n",
        "a: 0644\n",
        "a: .inf\n",
        "a: &x b\n",
        "a: {b: c, b: d}\n",
        "a: {b: y}\n",
        "a: {b: {c: d}, b: e}\n",
        "a: {b: {c: d}\n",
        "a: {b: [c}]\n",
        "a: [b: {c: d}]\n",
        "a: [b, ]\n",
        "a: [, b]\n",
        "a: [b c]\n",
        "a: [b, c] d\n",
        "a: [b:c]\n",
        "a: {b: c #d}\n",
        "a: [y]\n",
        "a: [-]\n",
        f"a: [{{b: {LONG}}}]\n",
        "a: {b}\n",
        "a: {b: }\n",
        "a: >\n  b\n",
        "a: |+\n  b\n",
        "a: |2\n  b\n",
        "a: | # b\n  c\n",
        "a: |\n  b",
        "a: |\nb: c\n",
        "a: |\n    b\n  c\n",
        "a: |\n    \n  b\n",
        "a: |\n  b\tc\n",
        "a: |\n\tb\n",
        "a: 'b''c'\n",
        'a: "b\\n"\n',
        "a: [b: c]\n",
        "a: b: c\n",
        "a: b:\n",
        "a:b\n",
        "a\n",
        "- a\n",
        " a: b\n",
        "a:\n - b\n  - c\n",
        "a:\n  - b\nc: d\n  - e\n",
        "a:\tb\n",
        "a: é\n",
        "a: b\r\n",
        "--- a\n",
        "a: b\n...\n",
        f"{LONG}: b\n",
        f"a: {{{LONG}: b}}\n",
        f"a: {LONG}: b\n",
        "%YAML 1.1\n---\na: b\n",
    ],
)
def test_other_syntax_is_left_to_libyaml(text: str) -> None:
    assert fast_path.read(text.encode()) is None


def test_a_list_or_mapping_that_a_line_writes_is_another_one_each_time() -> None:
    data = b"a: []\nb:\n- []\n- {}\nc: {d: [{}]}\n"
    for _ in range(2):
        plain = fast_path.read(data)
        assert plain == [(0, {"a": [], "b": [[], {}], "c": {"d": [{}]}})]
        value = plain[0][1]
        value["c"]["d"][0]["e"] = 1
        value["a"].append(1)
        value["b"][0].append(1)
        value["b"][1]["c"] = 1


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_real_files_are_read_as_by_libyaml(path: Path) -> None:
    data = path.read_bytes()
    value = fast_path.read(data)
    assert value is None or repr(value) == parsed_text(data)


def test_many_real_files_are_read_here() -> None:
    """Else all of it would be in vain."""
    assert (
        sum(fast_path.read(path.read_bytes()) is not None for path in MANIFESTS)
        > len(MANIFESTS) / 2
    )


WORDS = [
    "a",
    "b",
    "c",
    "1",
    "0x1F",
    "1e3",
    "a b",
    "'a'",
    '"a b"',
    "[]",
    "{}",
    "[a, 'b']",
    "[a,b]",
    "{a: b}",
    "{a: 1, b: 'c'}",
    "{a:b}",
    "-",
    "--a",
    ".5",
    "~",
    "null",
    ":",
    "a:b",
    "|",
    "|-",
]
VALUES = st.one_of(
    st.sampled_from(WORDS), st.text(st.sampled_from("ab1 :#-.,[]{}'\"?&*!|>%@=~"), max_size=8)
)
LINES = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["", "", "  ", "  ", "    ", " ", "      "]),
    st.sampled_from(["", "", "", "- ", "-   "]),
    st.sampled_from(["a: ", "b: ", "c:", "d:", "", "y: "]),
    VALUES,
    st.sampled_from(["", "", "", " ", " # b", "#b"]),
)


@given(
    st.lists(st.one_of(LINES, st.sampled_from(["", "---", "# a", "  # a", "..."])), max_size=8).map(
        "\n".join
    )
)
@example("a: |\n b\n  \n   \n  c\n\n")
@example("a: |\n\n  \n b\n")
@example("a: |-\n b\n---\n")
@example("a: - b")
@example("- ")
@example("a:\n  b: c\n d: e")
@example("a:\n- b:\n c: d")
def test_the_result_is_that_of_libyaml_or_none(text: str) -> None:
    value = fast_path.read(text.encode())
    assert value is None or repr(value) == parsed_text(text.encode())


FLOWS = st.recursive(
    st.sampled_from(["a", "-b", "--c=1", "$(D)", "1", "-1", ".5", "~", "y", "'e, f'", '"{g}"', ""]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(st.tuples(st.sampled_from(["a", "b", "on"]), inner), max_size=3).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
        ),
    ),
    max_leaves=6,
)


@given(
    st.lists(
        st.sampled_from(["a: ", "- ", "b: ", "  "]).flatmap(lambda head: FLOWS.map(head.__add__))
    ),
    st.integers(0, 60),
    st.sampled_from(["", "", "", " ", ",", ":", "]", "}", "[", "{", "#", " #", "-"]),
)
def test_flow_collections_are_those_of_libyaml(lines: list[str], at: int, odd: str) -> None:
    text = "\n".join(lines)
    text = text[:at] + odd + text[at:]
    value = fast_path.read(text.encode())
    assert value is None or repr(value) == parsed_text(text.encode())


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                ["a: |", "b: |-", "- |", "- c: |", "  d: |-", "  - |-", "e:", "---", ""]
            ),
            st.text(st.sampled_from(" ab:-#|"), max_size=8),
        ),
        max_size=12,
    ).map("\n".join)
)
@example("a:\n  - b: |\n    c\n    d: |\n      e")
def test_texts_in_literal_style_are_those_of_libyaml(text: str) -> None:
    for end in ("", "\n", "\n\n", "\n  \n"):
        value = fast_path.read((text + end).encode())
        assert value is None or repr(value) == parsed_text((text + end).encode())


@pytest.mark.parametrize(
    ("text", "reads"), [("a: b\n", True), ("a:\n- |\n  b\n", True), ("a: &b c\n", False)]
)
def test_the_syntax_of_a_file_is_known_before_and_after_it_is_read(text: str, reads: bool) -> None:
    data = f"# a file of this test alone\n{text}".encode()
    assert [fast_path.reads(data), fast_path.read(data) is not None, fast_path.reads(data)] == [
        reads
    ] * 3
