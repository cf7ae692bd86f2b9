"""The pages of the rules: description, examples, sources. `check --explain` prints a page, and
tests run its examples.

A page is Markdown with the sections Wrong, Right and Sources. An example is a whole manifest, or a
part of a DaemonSet.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

import msgspec

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"https?://\S+")


class RulePage(msgspec.Struct, frozen=True):
    """The text of a page, and its examples and sources."""

    text: str
    wrong: tuple[str, ...]
    right: tuple[str, ...]
    sources: tuple[str, ...]


@cache
def of(rule: str) -> RulePage | None:
    """The page of a rule; None without one."""
    file = resources.files(__package__).joinpath("pages", f"{rule}.md")
    return read(file.read_text(encoding="utf-8")) if file.is_file() else None


def read(text: str) -> RulePage:
    """A page, parsed."""
    parts = _SECTION.split(text)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    examples = {name: tuple(_YAML.findall(body)) for name, body in sections.items()}
    links = tuple(_LINK.findall(sections.get("Sources", "")))
    return RulePage(text, examples.get("Wrong", ()), examples.get("Right", ()), links)
