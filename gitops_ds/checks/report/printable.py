"""Text of a repository in a form that is safe to print. Pure.

Findings quote the content of a repository, and anyone can open a pull request. Control characters
and commands to CI runners are escaped, and long texts are truncated.
"""

from __future__ import annotations

import re
from typing import Final

from gitops_ds.core import plain_text
from gitops_ds.core.finding import Finding, Place
from gitops_ds.core.objects import Key, ListMember, Path
from gitops_ds.core.redaction import report as redaction_report
from gitops_ds.core.values import replace

_LONGEST_MESSAGE: Final = 2_000
_LONGEST_NAME: Final = 500
_LONGEST_FILE: Final = 4_096

# Control characters (an escape sequence could rewrite the terminal), line separators, bidirectional
# and invisible characters (https://trojansource.codes), and characters that are invalid in UTF-8 or
# XML: https://www.w3.org/TR/xml/#charsets
_HARMFUL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
# Invalid in JSON.
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
# GitHub, Azure Pipelines and TeamCity execute `##[…]` and `##vso[…]` anywhere in the output of a
# step.
_OLD_COMMAND = re.compile(r"##(?=\w*\[)")
# Newer commands of GitHub, at the start of a line after optional spaces.
_COMMAND = re.compile(r"^([^\S\n]*)::", re.MULTILINE)


def line(text: str, longest: int = _LONGEST_NAME) -> str:
    """A text on one line, without control sequences and commands; truncated with `…` if too
    long.
    """
    return text if _is_visible(text, longest) else _visible(text.replace("\n", "\\n"), longest)


def _is_visible(text: str, longest: int) -> bool:
    """Whether `_visible` changes nothing, the usual case. No harmful character is printable."""
    return text.isprintable() and len(text) <= longest and "##" not in text


def _visible(text: str, longest: int) -> str:
    return _OLD_COMMAND.sub("# #", _HARMFUL.sub(_escape, plain_text.shortened(text, longest)))


def without_lone_surrogates(text: str) -> str:
    """A text that JSON can encode: lone surrogates are escaped."""
    return _LONE_SURROGATES.sub(_escape, text)


def file(name: str) -> str:
    """The path of a file on one line."""
    return line(name, _LONGEST_FILE)


def _escape(match: re.Match[str]) -> str:
    return plain_text.escaped(match.group())


def message(text: str) -> str:
    """A message: as `line`, but with its line breaks; no line is a command to a CI runner."""
    if _is_visible(text, _LONGEST_MESSAGE) and not text.endswith(" ") and "::" not in text:
        return text
    lines = (line.rstrip() for line in text.replace("\r\n", "\n").replace("\t", " ").split("\n"))
    return _lines("\n".join(line for line in lines if line), _LONGEST_MESSAGE)


def block(text: str) -> str:
    """An excerpt of a file or a diff, without commands to CI runners."""
    return _lines(text.replace("\r\n", "\n").replace("\t", "    "), len(text) * 4)


def _lines(text: str, longest: int) -> str:
    """Several lines: a format may print each at the start of a line of its own."""
    return _COMMAND.sub(r"\1: :", _visible(text, longest))


def finding_texts(finding: Finding, hidden: redaction_report.ReportSecrets) -> Finding:
    """The finding with all texts printable and secrets hidden; itself if no text changes."""
    fix, text = finding.fix, message(hidden.in_message(finding))
    if fix and (words := message(hidden.within(fix.words))) != fix.words:
        fix = replace(fix, words=words)
    if _has_visible_names(finding):
        is_same = fix is finding.fix and text == finding.message
        return finding if is_same else replace(finding, message=text, fix=fix)
    return replace(
        finding,
        message=text,
        place=_place(finding.place),
        end=_place(finding.end),
        object=finding.object and key(finding.object),
        path=_path(finding.path),
        cluster=line(finding.cluster),
        fix=fix,
        other=finding.other and (key(finding.other[0]), _place(finding.other[1])),
    )


def _has_visible_names(finding: Finding) -> bool:
    """Whether the object, the place, the path and the cluster are printable as they are."""
    place, end, key = finding.place, finding.end, finding.object
    if place is None or end is None or key is None or finding.other:
        return False
    names = [place.file, end.file, key.group, key.kind, key.namespace, key.name, finding.cluster]
    names += [step for step in finding.path if isinstance(step, str)]
    return (
        _is_visible("".join(names), _LONGEST_NAME)
        and min(place.line, place.column, end.line, end.column) >= 0
    )


def _place(place: Place | None) -> Place | None:
    if place is None or (
        _is_visible(place.file, _LONGEST_FILE) and min(place.line, place.column) >= 0
    ):
        return place
    return Place(file(place.file), max(place.line, 0), max(place.column, 0))


def key(key: Key) -> Key:
    """The key with printable names."""
    texts = (key.group, key.kind, key.namespace, key.name)
    return key if _is_visible("".join(texts), _LONGEST_NAME) else Key(*map(line, texts))


def _path(path: Path) -> Path:
    if _is_visible("".join([step for step in path if isinstance(step, str)]), _LONGEST_NAME):
        return path
    return tuple(
        step
        if isinstance(step, int)
        else ListMember(line(step))
        if isinstance(step, ListMember)
        else line(step)
        for step in path
    )
