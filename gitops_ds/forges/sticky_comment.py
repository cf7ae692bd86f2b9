"""The sticky comment of a pull request: its text, its author, and the order of two reports. Pure.

The first line is the report's marker, the second our own with commit and run. Both are HTML
comments, which forges hide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gitops_ds.forges.contract import Comment


class Sticky(msgspec.Struct, frozen=True):
    """A comment to write: the marker (one line), the text below it, the commit, and the numbers of
    the run.
    """

    marker: str
    text: str
    sha: str = ""
    run: tuple[int, ...] = ()

    @property
    def body(self) -> str:
        """The whole comment."""
        run = ".".join(map(str, self.run))
        return f"{self.marker}\n<!-- gitops-ds:posted commit={self.sha} run={run} -->\n{self.text}"


def find_own(comments: Iterable[Comment], user: str, sticky: Sticky) -> Comment | None:
    """The user's first comment with that marker; comments of others with the same marker are
    ignored.
    """
    return next(
        (
            comment
            for comment in comments
            if comment.author == user and _lines(comment.body)[0] == sticky.marker
        ),
        None,
    )


def is_same(comment: Comment, sticky: Sticky) -> bool:
    """Whether the comment already has that text."""
    return _lines(comment.body) == _lines(sticky.body)


_POSTED = re.compile(r"<!-- gitops-ds:posted commit=([0-9a-f]*) run=([0-9.]{0,80}) -->")


def is_newer(comment: Comment, sticky: Sticky) -> bool:
    """Whether a later run for the same commit wrote the comment."""
    lines = _lines(comment.body)
    match = _POSTED.fullmatch(lines[1]) if len(lines) > 1 else None
    if match is None or match[1] != sticky.sha:
        return False
    return tuple(int(number) for number in match[2].split(".") if number) > sticky.run


def _lines(body: str) -> list[str]:
    """The lines without trailing space, because forges may change line ends and trim the text."""
    return [line.rstrip() for line in body.replace("\r\n", "\n").rstrip().split("\n")]
