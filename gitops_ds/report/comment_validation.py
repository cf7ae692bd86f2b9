"""The Markdown page of a report, validated before it is posted. Pure.

The page must have the format of `check -o markdown=FILE`. Bots and GitLab execute lines that start
with `/word`, and `@name` mentions a user; a zero-width character disables both, as in `markdown`.
Links, images and HTML remain. For a job that runs untrusted code use the JSON report, which
`comment_data` renders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from gitops_ds.model.finding import Severity
from gitops_ds.report import markdown
from gitops_ds.report.findings import SEVERITY_ORDER

_BREAK: Final = "\u200b"
_MARKER = re.compile(r"<!-- gitops-ds:report key=([A-Za-z0-9._/-]{1,100}) v=1 -->")
_VERDICT = re.compile(
    r"\*\*gitops-ds check: (?:no findings|(\d{1,9}) errors?, (\d{1,9}) warnings?, (\d{1,9}) "
    r"info)\*\* in .*"
)
_HEAD = re.compile(r"<sub>Checked `([0-9a-f]{7,64})`[^<]*</sub>")
_COMMAND = re.compile(r"^(\s*)/(?=\w)", re.MULTILINE)
_MENTION = re.compile(r"(?<!\w)@(?=\w)")


class CommentPage(msgspec.Struct, frozen=True):
    """A report to post: the key of its marker, the number of findings, the abbreviated ID of its
    commit (or empty), and the text below the marker.
    """

    key: str
    count: Mapping[Severity, int]
    head: str
    text: str

    def loud(self, fail_on: Severity) -> bool:
        """Whether a finding has this severity or a higher one."""
        return any(
            number and SEVERITY_ORDER[severity] <= SEVERITY_ORDER[fail_on]
            for severity, number in self.count.items()
        )


def read(data: bytes) -> CommentPage:
    """The page. Raises ValueError with a message for content that `check -o markdown=FILE` did not
    write.
    """
    if len(data) > markdown.COMMENT:
        raise ValueError(f"it has more than {markdown.COMMENT:,} bytes")
    try:
        lines = data.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError:
        raise ValueError("it is not valid UTF-8") from None
    marker = _MARKER.fullmatch(lines[0])
    verdict = _VERDICT.fullmatch(lines[1]) if marker and len(lines) > 1 else None
    if marker is None or verdict is None:
        raise ValueError("it does not start like a report")
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
