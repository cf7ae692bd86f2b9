"""JSONPath templates of kubectl: text with paths in braces.

https://kubernetes.io/docs/reference/kubectl/jsonpath/ and k8s.io/client-go/util/jsonpath. Fields,
indexes, slices, unions, wildcards, recursive descent, filters with one comparison, `range` and
quoted text. A missing key is empty text, as in `kubectl get`.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

_FIELD = r"(?:\\.|[^\s.\[\]{}()'\"\\,*?@$=!<>|])+"
_TOKEN = re.compile(
    rf"""(?P<descend>\.\.(?=\S))
      | \.?(?P<all>\*) | \.?\[\s*(?P<every>\*)\s*\]
      | \.?\[\s*(?P<slice>-?\d*\s*:\s*-?\d*(?:\s*:\s*-?\d*)?)\s*\]
      | \.?\[\s*(?P<index>-?\d+)\s*\]
      | \.?\[\s*\?\((?P<filter>(?:[^()"']|"[^"]*"|'[^']*')*)\)\s*\]
      | \.?\[\s*(?P<union>(?:'[^']*'|"[^"]*"|[-\w]+)(?:\s*,\s*(?:'[^']*'|"[^"]*"|[-\w]+))*)\s*\]
      | \.?(?P<field>{_FIELD})""",
    re.VERBOSE,
)
_PART = re.compile(
    r"""'((?:\\.|[^'\\])*)'|"((?:\\.|[^"\\])*)"|([^\s'"{}]+(?:\[[^\]]*\][^\s{}]*)*)"""
)
_COMPARISON = re.compile(r"(.+?)\s*(==|!=|<=|>=|<|>)\s*(.+)", re.DOTALL)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Step = Callable[[Any], Iterator[Any]]


class InvalidPath(ValueError):
    """A template or path that cannot be parsed."""


class Path(msgspec.Struct, frozen=True):
    """A parsed path; from the root of the document if `rooted`."""

    steps: tuple[Step, ...]
    rooted: bool = False

    def find(self, node: Any, root: Any) -> list[Any]:
        """The values at the path."""
        values = [root if self.rooted else node]
        for step in self.steps:
            values = [value for start in values for value in step(start)]
        return values


class Range(msgspec.Struct, frozen=True):
    """A part of a template that is repeated for each value at the path."""

    path: Path
    body: tuple[Node, ...]


Node = str | Path | Range


def path(text: str) -> Path:
    """The path in `{.a.b}`, `.a.b` or `a.b`, as `kubectl get --sort-by` accepts it. Raises
    InvalidPath.
    """
    bare = text.strip()
    if bare.startswith("{") and bare.endswith("}"):
        bare = bare[1:-1].strip()
    return _path(bare)


def template(text: str) -> tuple[Node, ...]:
    """The parts of a template. Raises InvalidPath."""
    levels: list[tuple[Path | None, list[Node]]] = [(None, [])]
    for node in _nodes(text):
        if isinstance(node, Range):
            levels.append((node.path, []))
        elif node is None:
            repeated, body = levels.pop()
            if repeated is None:
                raise InvalidPath("{end} without {range}")
            levels[-1][1].append(Range(repeated, tuple(body)))
        else:
            levels[-1][1].append(node)
    if len(levels) > 1:
        raise InvalidPath("{range} without {end}")
    return tuple(levels[0][1])


def render(parts: Sequence[Node], document: Any) -> str:
    """The text of a template for a document."""
    return "".join(_text(parts, document, document))


def _text(parts: Sequence[Node], node: Any, root: Any) -> Iterator[str]:
    for part in parts:
        match part:
            case str():
                yield part
            case Path():
                yield " ".join(map(as_text, part.find(node, root)))
            case Range(repeated, body):
                for element in repeated.find(node, root):
                    yield from _text(body, element, root)


def as_text(value: Any) -> str:
    """A value as kubectl prints it: a string without quotes, others as JSON, null as an empty
    text.
    """
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _nodes(text: str) -> Iterator[Node | None]:
    """Text, paths, ranges without a body, and None for `end`."""
    at = 0
    while (brace := text.find("{", at)) >= 0:
        if brace > at:
            yield text[at:brace]
        end = _closing(text, brace)
        yield from _actions(text[brace + 1 : end])
        at = end + 1
    if at < len(text):
        yield text[at:]


def _closing(text: str, brace: int) -> int:
    """The position of the brace that closes the one at `brace`; braces in quotes are ignored."""
    quote, at = "", brace + 1
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "}":
            return at
        at += 1
    raise InvalidPath(f"no closing brace in {text[brace:]!r}")


def _actions(text: str) -> Iterator[Node | None]:
    text = text.strip()
    if text == "end":
        yield None
    elif text.startswith(("range ", "range\t")):
        yield Range(_path(text[len("range") :].strip()), ())
    elif text[:1] in ("'", '"'):
        quoted = _PART.fullmatch(text)
        if quoted is None:
            raise InvalidPath(f"{text!r} is not quoted text")
        yield _unescaped(quoted[1] if quoted[1] is not None else quoted[2])
    else:
        yield _path(text)


def _unescaped(text: str) -> str:
    escapes = {"n": "\n", "t": "\t", "r": "\r"}
    return re.sub(r"\\(.)", lambda match: escapes.get(match[1], match[1]), text)


def _path(text: str) -> Path:
    rooted = text.startswith("$")
    rest = text[1:] if text[:1] in ("$", "@") else text
    steps, at = list[Step](), 0
    while at < len(rest) and rest != ".":
        token = _TOKEN.match(rest, at)
        if token is None:
            raise InvalidPath(f"cannot read {rest[at:]!r} in {text!r}")
        steps.append(_step(token))
        at = token.end()
    return Path(tuple(steps), rooted)


def _step(token: re.Match[str]) -> Step:
    kind, text = token.lastgroup or "", token[token.lastgroup or 0]
    match kind:
        case "descend":
            return _descendants
        case "all" | "every":
            return _children
        case "slice":
            numbers = [int(part) if part.strip() else None for part in text.split(":")]
            if 0 in numbers[2:]:
                raise InvalidPath(f"the step of [{text}] is 0")
            return _sliced(slice(*numbers))
        case "index":
            return _indexed(int(text))
        case "filter":
            return _filtered(text.strip())
        case "union":
            return _fields([part.strip().strip("'\"") for part in text.split(",")])
        case _:
            return _fields([re.sub(r"\\(.)", r"\1", text)])


def _children(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        yield from node.values()
    elif isinstance(node, list):
        yield from node


def _descendants(node: Any) -> Iterator[Any]:
    yield node
    for child in _children(node):
        yield from _descendants(child)


def _sliced(which: slice) -> Step:
    return lambda node: iter(node[which] if isinstance(node, list) else ())


def _indexed(number: int) -> Step:
    def step(node: Any) -> Iterator[Any]:
        if isinstance(node, list) and -len(node) <= number < len(node):
            yield node[number]

    return step


def _fields(names: Sequence[str]) -> Step:
    def step(node: Any) -> Iterator[Any]:
        if isinstance(node, dict):
            yield from (node[name] for name in names if name in node)
        elif isinstance(node, list):
            numbers = (int(name) for name in names if re.fullmatch(r"-?\d+", name))
            yield from (node[at] for at in numbers if -len(node) <= at < len(node))

    return step


def _filtered(condition: str) -> Step:
    """The members of a list that meet `@.a == "b"`, or have `@.a`."""
    parts = _COMPARISON.fullmatch(condition)
    left = _operand(parts[1] if parts else condition)
    right = _operand(parts[3]) if parts else None
    compare = _OPERATORS[parts[2]] if parts else None

    def meets(member: Any) -> bool:
        left_values = left.find(member, member) if isinstance(left, Path) else [left]
        if compare is None or not left_values:
            return bool(left_values)
        right_values = right.find(member, member) if isinstance(right, Path) else [right]
        try:
            return bool(right_values) and compare(left_values[0], right_values[0])
        except TypeError:  # of different types
            return False

    return lambda node: (member for member in _children(node) if meets(member))


def _operand(text: str) -> Any:
    """A path, or a literal: quoted text, a number, true or false."""
    text = text.strip()
    if text[:1] in ("@", "$"):
        return _path(text)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidPath(f"{text!r} is neither a path nor a value: put text in quotes") from None
