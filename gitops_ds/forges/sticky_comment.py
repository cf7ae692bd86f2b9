"""The one comment that is written again and again: what it begins with, whose it is, and which
report is the newer one. Pure.

Its first line is the report's marker, its second is ours and tells commit and run. Both are HTML
comments, which forges hide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gitops_ds.forges.requests import Comment


@dataclass(frozen=True, slots=True)
class Sticky:
    """What is to stand there: the marker (a line), the text below it, the commit it is of, and the
    numbers of the run.
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


def own(comments: Iterable[Comment], me: str, sticky: Sticky) -> Comment | None:
    """Our comment with that marker, the first if there are several; another's with the same marker
    is none of ours.
    """
    return next(
        (one for one in comments if one.author == me and _lines(one.body)[0] == sticky.marker), None
    )


def same(there: Comment, sticky: Sticky) -> bool:
    """Whether it says all of it already."""
    return _lines(there.body) == _lines(sticky.body)


_POSTED = re.compile(r"<!-- gitops-ds:posted commit=([0-9a-f]*) run=([0-9.]{0,80}) -->")


def newer(there: Comment, sticky: Sticky) -> bool:
    """Whether the comment is of a later run for the same commit."""
    lines = _lines(there.body)
    found = _POSTED.fullmatch(lines[1]) if len(lines) > 1 else None
    if found is None or found[1] != sticky.sha:
        return False
    return tuple(int(number) for number in found[2].split(".") if number) > sticky.run


def _lines(body: str) -> list[str]:
    """A forge may write other ends of lines, and cuts space at the end."""
    return [line.rstrip() for line in body.replace("\r\n", "\n").rstrip().split("\n")]
