"""Files of YAML and JSON: values as kubectl's, findings at their place, and no bytes that make the
reader raise.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core.finding import Mend
from gitops_ds.core.objects import Path
from gitops_ds.yaml import libyaml, nodes, parser
from gitops_ds.yaml.documents import Document, Parsed

DOUBT = "in kubectl and differs in other YAML parsers"
BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n"
    for old, new in zip("abcde", "bcdef", strict=True)
)


def values(text: str | bytes) -> list[object]:
    return [
        document.value
        for document in parser.read(
            "f", text if isinstance(text, bytes) else text.encode()
        ).documents
    ]


def finding_texts(data: bytes) -> list[str]:
    return [
        f"{finding.rule} {finding.place} {finding.message}"
        for finding in parser.read("f.yaml", data).findings
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\nb: 'x'\nc: \"2\"\nd: |\n  y\n", {"a": 1, "b": "x", "c": "2", "d": "y\n"}),
        ("a: [1, two, {b: ~}]", {"a": [1, "two", {"b": None}]}),
        ("a: !!str 5\nc: !!map {x: 1}\nd: !!seq [1]\n", {"a": "5", "c": {"x": 1}, "d": [1]}),
        (
            '{"a": "\\ud83d\\ude00 \\/",\n\t"b": 1.0, "c": [true, null]}',
            {"a": "😀 /", "b": 1, "c": [True, None]},
        ),
        ("a: &x {b: 1}\nc: *x\n", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: 1\n<<: {a: 2, b: 3}\n", {"a": 2, "b": 3}),
        ("<<: {a: 2, b: 3}\na: 1\n", {"a": 1, "b": 3}),
        ("<<: [{a: 2}, {a: 3, c: 4}]\n", {"a": 2, "c": 4}),
        ('"<<": {a: 2}\n', {"<<": {"a": 2}}),
        ("1: a\ntrue: b\n", {"1": "a", "true": "b"}),
        ("a:\t1\n", {"a": 1}),
        ("\ufeffa: 1\n", {"a": 1}),
        # a colon inside a scalar of a flow collection
        ("a: {image: foo:1, b: x}", {"a": {"image": "foo:1", "b": "x"}}),
        ("a: [c:d, 'e:f', \"g:h\"]", {"a": ["c:d", "e:f", "g:h"]}),
        ("a: {c: oci://host/x?y=z, v: 1.2.3}", {"a": {"c": "oci://host/x?y=z", "v": "1.2.3"}}),
        ('a: {"k":1, "l":foo:2}', {"a": {"k": 1, "l": "foo:2"}}),
        ("---\na: {t: 12:30:45}", {"a": {"t": "12:30:45"}}),
        ("a: {b: &x http://h:80/p, c: *x}", {"a": {"b": "http://h:80/p", "c": "http://h:80/p"}}),
    ],
)
def test_a_document_is_read_as_kubectl_reads_it(text: str, value: object) -> None:
    assert values(text) == [value]


def test_empty_documents_are_left_out_but_counted() -> None:
    parsed = parser.read(
        "f", b"# only a comment\n---\n---\na: 1\n---\n# nothing\n---\nb: 2\n"
    ).documents
    assert [(one.index, one.value) for one in parsed] == [(1, {"a": 1}), (3, {"b": 2})]


def test_values_of_aliases_are_copied() -> None:
    (value,) = values("a: &x {b: []}\nc: *x\n")
    assert isinstance(value, dict)
    assert value["a"] is not value["c"]
    assert value["a"]["b"] is not value["c"]["b"]


@pytest.mark.parametrize(
    ("data", "finding"),
    [
        (
            b"a: b: c\n",
            ('DS001 f.yaml:1:5 unexpected ":": quote the string, or fix the indentation'),
        ),
        (
            b"a: 1\n<<<<<<< HEAD\nb: 2\n=======\nb: 3\n>>>>>>> other\n",
            "DS001 f.yaml:2:1 conflict markers of a merge (<<<<<<<): resolve the conflict",
        ),
        (b"a:\n\t- b\n", "DS001 f.yaml:2:1 a tab can't indent YAML: use spaces"),
        (b"a: 1\n\tb: 2\n", "DS001 f.yaml:2:1 a tab can't indent YAML: use spaces"),
        (
            b"a: 'x\n",
            "DS001 f.yaml:2:1 the file ends inside a quoted string: the closing quote is missing",
        ),
        (b"- a\nb: c\n", 'DS001 f.yaml:2:1 expected "-" here: fix the indentation'),
        (b"x: 1\na: \xc3(\n", "DS001 f.yaml:2:4 the file is not UTF-8: save it as UTF-8"),
        (
            b"x: 1\na: b\x00c\n",
            "DS001 f.yaml:2:5 the character U+0000 is not allowed in YAML: remove it",
        ),
        ("a: 1\n".encode("utf-16"), "DS001 f.yaml:1:1 the file is UTF-16: save it as UTF-8"),
        (
            b"\xef\xbb\xbfa: 1\n",
            (
                "DS001 f.yaml:1:1 the file starts with a byte order mark, which some tools "
                "reject: remove it"
            ),
        ),
        (
            b"a: 1\nb:\n  a: 1\n  a: 2\n",
            'DS002 f.yaml:4:3 duplicate key "a"; the first is at f.yaml:3:3',
        ),
        (
            b"1: a\n'1': b\n",
            'DS002 f.yaml:2:1 duplicate key "1"; the first is at f.yaml:1:1',
        ),
        (
            b"a: &x 1\nb: &x 2\n",
            "DS001 f.yaml:2:4 duplicate anchor in the document: rename it",
        ),
        (b"a: *x\n", "DS001 f.yaml:1:4 the alias has no anchor of that name above it"),
        (
            b"a: !foo b\n",
            "DS001 f.yaml:1:4 the tag !foo is not supported: use !!str, !!map or !!seq",
        ),
        (b"? [a]\n: b\n", "DS001 f.yaml:1:3 a key must be a string, not a list or a mapping"),
        (b"~: b\n", "DS001 f.yaml:1:1 the key ~ is not a string: quote it"),
        (
            b"a: .inf\n",
            ('DS001 f.yaml:1:4 .inf is not a valid JSON number: write ".inf" for a string'),
        ),
        (b"<<: 3\n", "DS001 f.yaml:1:5 << must be a mapping or a list of mappings"),
        (
            b"a: &a [*a]\n",
            (
                "DS001 f.yaml:1:4 the document is nested more than 64 levels deep, or an alias "
                "contains itself"
            ),
        ),
        (b"[" * 100_000, "DS001 f.yaml the document is nested more than 64 levels deep"),
        (
            b"- " * 65,
            (
                "DS001 f.yaml:1:129 the document is nested more than 64 levels deep, or an alias "
                "contains itself"
            ),
        ),
        (b"- " * 100_000, "DS001 f.yaml the document is nested more than 64 levels deep"),
        (b"[" + b"a," * 100_001 + b"]", "DS001 f.yaml a document has more than 100,000 values"),
        (
            b"defaultMode: 0644\n",
            (
                f'DS007 f.yaml:1:14 0644 is the number 420 {DOUBT}: write 420, or "0644" for a '
                "string"
            ),
        ),
        (
            b"a: yes\n",
            f'DS007 f.yaml:1:4 yes is true {DOUBT}: write true, or "yes" for a string',
        ),
        (
            b"on: a\n",
            (
                'DS007 f.yaml:1:1 the key on is "true" in kubectl and differs in other '
                "YAML parsers: quote it"
            ),
        ),
    ],
)
def test_a_finding_has_a_message_a_place_and_a_fix(data: bytes, finding: str) -> None:
    assert finding_texts(data) == [finding]


def test_sixty_four_levels_are_fine() -> None:
    for text in (
        "- " * 64 + "x",
        "[" * 64 + "]" * 64,
        "[" * 64 + "]" * 64 + " " * 200_000,
        "".join(" " * n + "a:\n" for n in range(64)),
    ):
        assert finding_texts(text.encode()) == []


def test_a_bomb_of_aliases_is_refused() -> None:
    (finding,) = finding_texts(BOMB.encode())
    assert finding.startswith("DS001")
    most = 10 * len(BOMB) + 10_000
    assert finding.endswith(f"with its aliases expanded the document has more than {most:,} values")


@pytest.mark.slow
def test_many_small_bombs_are_refused_as_one() -> None:
    small = f"a: &a [{'x,' * 90}]\nb: [{'*a,' * 90}]\n"
    parsed = parser.read("f.yaml", "---\n".join([small] * 1000).encode())
    (finding,) = parsed.findings
    assert finding.refused
    assert "with its aliases expanded" in finding.message
    assert len(parsed.documents) < 1000


def test_an_alias_that_is_used_again_and_again_is_not_a_bomb() -> None:
    resources = "{requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 64Mi}}"
    assert finding_texts(f"- &r {resources}\n{'- *r' + chr(10)}".encode() + b"- *r\n" * 5000) == []


def test_a_file_beyond_ten_mebibytes_is_not_read() -> None:
    assert finding_texts(b"#" * (libyaml.MAX_BYTES + 1)) == [
        "DS001 f.yaml the file has 10,485,761 bytes: the limit is 10,485,760"
    ]


def test_documents_before_a_syntax_error_are_kept() -> None:
    parsed = parser.read("f", b"a: 1\n---\nb: [\n")
    assert [document.value for document in parsed.documents] == [{"a": 1}]
    assert [finding.rule for finding in parsed.findings] == ["DS001"]


TEXT = b"""a: 1
---
# two
spec:
  list:
    - name: x
      value: "y z"
    - {name: q, m: [1, 2]}
  "quoted key": v
  empty:
"""


@pytest.mark.parametrize(
    ("path", "key", "start", "end"),
    [
        (("spec", "list", 0, "value"), False, "f:7:14", "f:7:19"),
        (("spec", "list", 0, "value"), True, "f:7:7", "f:7:12"),
        (("spec", "list", 1, "m", 1), False, "f:8:24", "f:8:25"),
        (("spec", "list", 1), False, "f:8:7", "f:8:27"),
        (("spec", "list"), False, "f:6:5", "f:8:27"),
        (("spec", "quoted key"), True, "f:9:3", "f:9:15"),
        (("spec", "empty"), False, "f:10:9", "f:10:9"),
        (("spec", "list", 0, "nothing"), False, "f:6:7", "f:7:19"),
        (("nothing", "at", "all"), False, "f:4:1", "f:10:9"),
        (("spec", "list", 7), False, "f:5:3", "f:5:7"),
    ],
)
def test_a_value_or_its_key_is_found_again(
    path: tuple[str | int, ...], key: bool, start: str, end: str
) -> None:
    assert [str(one) for one in parser.span("f", TEXT, 1, path, key=key)] == [start, end]


def test_a_value_that_a_merge_brought_is_found_where_it_was_written() -> None:
    data = b"base: &b {x: 1}\nuse:\n  <<: *b\n  y: 2\n"
    assert str(parser.place("f", data, 0, ("use", "x"))) == "f:1:14"


def test_a_colon_inside_a_flow_scalar_moves_no_place_and_hides_no_error() -> None:
    assert str(parser.place("f", b"a: {image: foo:1, b: x}", 0, ("a", "b"))) == "f:1:22"
    assert parser.read("f", b"a: {b: c:d").findings[0].rule == "DS001"


def test_a_place_in_a_file_that_is_not_yaml_is_the_file() -> None:
    assert str(parser.place("f", b"\x00", 0, ("a",))) == "f"
    assert str(parser.place("f", b"a: 1", 5, ("a",))) == "f"


# of these, and of single characters
YAML_BITS = st.lists(
    st.sampled_from(["a: ", "  ", "&a ", "*a", "<<: ", "---\n", "!x ", "? ", "0x", "\\u"])
    | st.sampled_from("-\n\t[]{},|>'\"#1yé~%:\x00")
).map("".join)


@given(st.one_of(st.binary(max_size=200), YAML_BITS.map(str.encode)))
def test_no_bytes_make_the_reader_raise(data: bytes) -> None:
    parsed = parser.read("f", data)
    for document in parsed.documents:
        json.dumps(document.value, allow_nan=False)
        parser.place("f", data, document.index, ("a", 0))
    for finding in parsed.findings:
        assert finding.place is not None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs", "Cc"])), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(JSON, st.booleans(), st.sampled_from([None, 2, "\t"]))
def test_json_is_read_as_json(value: object, ascii: bool, indent: int | str | None) -> None:
    """Characters that YAML does not accept raw are escapes in JSON."""
    text = json.dumps({"v": value}, ensure_ascii=ascii, indent=indent)
    assert parser.read("f.json", text.encode()) == Parsed((Document(0, {"v": value}),), ())


def test_the_c_parser_is_available() -> None:
    assert nodes.c_parser_present()


@pytest.mark.parametrize(
    ("text", "path", "value", "safe"),
    [
        (b"a: [1, 0644]", ("a", 1), 420, False),
        (b"a: {b: yes}", ("a", "b"), True, False),
        (b"a: 12:30:45", ("a",), "12:30:45", True),
        (b"a: &x 2024-01-01\nb: {c: *x}", ("a",), "2024-01-01", True),
    ],
)
def test_a_doubt_is_mended_with_what_kubectl_reads(
    text: bytes, path: Path, value: object, safe: bool
) -> None:
    finding = parser.read("f.yaml", text).findings[0]
    assert finding.path == path
    assert finding.fix is not None
    assert finding.fix.mends == (Mend(path, value),)
    assert finding.fix.safe is safe


def test_a_merge_key_may_have_its_tag() -> None:
    text = b"a: &a {b: 1}\nc:\n  !!merge <<: *a\n  d: 2\n"
    parsed = parser.read("a.yaml", text)
    assert [document.value for document in parsed.documents] == [
        {"a": {"b": 1}, "c": {"b": 1, "d": 2}}
    ]
    assert parsed.findings == ()
    assert parser.place("a.yaml", text, 0, ("c", "b")).line == 1
