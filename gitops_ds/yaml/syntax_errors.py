"""The findings for libyaml's errors: problem, place and solution."""

from __future__ import annotations

import re
from typing import Final

from ruamel.yaml.error import MarkedYAMLError, YAMLError

from gitops_ds.model.finding import Finding, Place, refusal

RULE: Final = "DS001"

# Compiled on first use: compiling takes as long as reading ten files.
_FORBIDDEN: Final = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_TAB: Final = "found a tab character that violates indentation"
_NOT_UTF_8: Final = "the file is not UTF-8: save it as UTF-8"
_MESSAGES: Final = {
    "mapping values are not allowed in this context": 'unexpected ":": quote the string, or fix '
    "the indentation",
    "could not find expected ':'": 'a key without ":": fix the indentation, or quote the string '
    "above",
    "did not find expected key": "expected a key here: fix the indentation, or quote the string "
    "above",
    "did not find expected '-' indicator": 'expected "-" here: fix the indentation',
    "found unexpected end of stream": "the file ends inside a quoted string: the closing quote is "
    "missing",
    "found unexpected document indicator": "a document ends inside a quoted string: the closing "
    "quote is missing",
    "second occurrence": "duplicate anchor in the document: rename it",
    "found undefined alias": "the alias has no anchor of that name above it",
    _TAB: "a tab can't indent YAML: use spaces",
    "found a tab character where an indentation space is "
    "expected": "a tab can't indent YAML: use spaces",
}


def finding(file: str, data: bytes, error: YAMLError) -> Finding:
    """The DS001 finding for an error of libyaml."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as wrong:
        return refusal(RULE, _NOT_UTF_8, _end_of(file, data[: wrong.start].decode("utf-8")))
    if not isinstance(error, MarkedYAMLError):
        forbidden = re.search(_FORBIDDEN, text)
        if forbidden is None:
            return refusal(RULE, shorten(str(error)), Place(file))
        character = f"U+{ord(forbidden[0]):04X}"
        message = f"the character {character} is not allowed in YAML: remove it"
        return refusal(RULE, message, _end_of(file, text[: forbidden.start()]))
    mark = error.problem_mark or error.context_mark
    where = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
    problem = str(error.problem or error.context or "syntax error")
    line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
    if (
        problem == "found character that cannot start any token"
        and line[mark.column : mark.column + 1] == "\t"
    ):
        problem = _TAB
    return refusal(RULE, _MESSAGES.get(problem, f"invalid YAML: {problem}"), where)


def shorten(text: str) -> str:
    """The text in at most 80 characters."""
    return text if len(text) <= 80 else text[:77] + "..."


def _end_of(file: str, before: str) -> Place:
    line = before.count("\n")
    return Place(file, line + 1, len(before) - (before.rfind("\n") + 1) + 1)
