"""The Markdown page of a report, read back before it is posted. Pure.

It has to have our form. Bots and GitLab take a line that begins with `/word` for a command, and
`@name` calls somebody; both are broken by a character of no width, as `markdown` does it. Links,
images and HTML stay: of a job that runs a stranger's code the JSON report is taken, which
`page_data` renders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gitops_ds.model.finding import Severity
from gitops_ds.report import markdown
from gitops_ds.report.findings import LOUDNESS

_BREAK: Final = "\u200b"
_MARKER = re.compile(r"<!-- gitops-ds:report key=([A-Za-z0-9._/-]{1,100}) v=1 -->")
_VERDICT = re.compile(
    r"\*\*gitops-ds check: (?:no findings|(\d{1,9}) errors?, (\d{1,9}) warnings?, (\d{1,9}) "
    r"info)\*\* in .*"
)
_HEAD = re.compile(r"<sub>Checked `([0-9a-f]{7,64})`[^<]*</sub>")
_COMMAND = re.compile(r"^(\s*)/(?=\w)", re.MULTILINE)
_MENTION = re.compile(r"(?<!\w)@(?=\w)")


@dataclass(frozen=True, slots=True)
class CommentPage:
    """A report as it may be posted: the key of its marker, how many findings there are, of which
    commit it is (the id's beginning, or nothing), and the text below the marker.
    """

    key: str
    count: Mapping[Severity, int]
    head: str
    text: str

    def loud(self, fail_on: Severity) -> bool:
        """Whether a finding is as loud as that."""
        return any(
            number and LOUDNESS[severity] <= LOUDNESS[fail_on]
            for severity, number in self.count.items()
        )


def read(data: bytes) -> CommentPage:
    """The page in these bytes. Raises ValueError, in words, for what `check -o markdown=FILE` did
    not write.
    """
    if len(data) > markdown.COMMENT:
        raise ValueError(f"it has more than {markdown.COMMENT:,} bytes")
    try:
        lines = data.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError:
        raise ValueError("it is no UTF-8") from None
    marker = _MARKER.fullmatch(lines[0])
    verdict = _VERDICT.fullmatch(lines[1]) if marker and len(lines) > 1 else None
    if marker is None or verdict is None:
        raise ValueError("it does not begin as a report does")
    foot = _HEAD.fullmatch(next(line for line in reversed(lines) if line.strip()))
    return CommentPage(
        marker[1],
        {
            severity: int(number or 0)
            for severity, number in zip(Severity, verdict.groups(), strict=True)
        },
        foot[1] if foot else "",
        _harmless("\n".join(lines[1:]).rstrip() + "\n"),
    )


def _harmless(text: str) -> str:
    visible = "".join(char for char in text if char.isprintable() or char in "\n" + _BREAK)
    return _MENTION.sub(f"@{_BREAK}", _COMMAND.sub(rf"\1{_BREAK}/", visible))
