"""Parses the pages of the documentation: sections, fenced blocks, and the expected output of
blocks.

What a page may hold, and what becomes of it:

- a `sh` block is run, those of a section (a `##` heading) one after the other in one shell, in a
  directory of its own;
- a `yaml` or `json` block whose first line is a comment with a file's name (`# clusters/main.yaml`;
  in JSON a `<!-- file: … -->`
  before the block) is written there when its turn comes;
- a `text` block is what the last `sh` block printed: each of its lines has to come, in that order.
  `…` means anything,
  numbers and ids for others of their kind (but for the number of a revision, and counts of files,
  objects and findings);
- `<!-- needs: cluster -->` before a block: the section runs against a real control plane;
- `Continues the example of [NAME](PAGE).` before a block: the section runs after that of PAGE, in
  the same shell;
- `<!-- demo -->` before a text block: lines of `gitops-ds demo`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from gitops_ds.core.values import replace

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    ROOT / "GOVERNANCE.md",
    ROOT / "CODE_OF_CONDUCT.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)

_BLOCK = re.compile(
    r"^(?:<!-- (?P<comment>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_HEADING = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
_CONTINUES = re.compile(r"^Continues the example of \[.*\]\((?P<page>[\w./-]+)\)\.$", re.MULTILINE)
_FILE = re.compile(r"\A# (?P<path>[\w./-]+\.(?:ya?ml|json))\s")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the comment before it, its text, its line in the
    page.
    """

    language: str
    comment: str
    text: str
    line: int
    page: Path = field(default=Path(), compare=False)

    @property
    def file(self) -> str:
        """The name of the file that the block is, or nothing."""
        if self.comment.startswith("file: "):
            return self.comment.removeprefix("file: ")
        found = _FILE.match(self.text) if self.language in ("yaml", "json") else None
        return found["path"] if found else ""


@dataclass(frozen=True)
class Section:
    """A `##` section of a page with its blocks; `title` is empty before the first heading."""

    page: Path
    title: str
    blocks: tuple[Block, ...]
    continues: Path | None = None

    @property
    def needs_cluster(self) -> bool:
        return any(block.comment == "needs: cluster" for block in self.blocks)

    @property
    def runs(self) -> bool:
        return any(block.language == "sh" for block in self.blocks)

    def __str__(self) -> str:
        return f"{name(self.page)}: {self.title or 'beginning'}"


def name(page: Path) -> str:
    """The path of a page in the project."""
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name


def sections(page: Path) -> Iterator[Section]:
    """The sections of a page, in order."""
    text = page.read_text("utf-8")
    starts = [(0, "")] + [
        (found.start(), found["title"]) for found in _HEADING.finditer(_without_blocks(text))
    ]
    for (start, title), end in zip(
        starts, [start for start, _ in starts[1:]] + [len(text)], strict=True
    ):
        part = text[start:end]
        first = text.count("\n", 0, start) + 1
        blocks = (
            Block(
                b["language"],
                b["comment"] or "",
                b["text"],
                first + part.count("\n", 0, b.start()),
                page,
            )
            for b in _BLOCK.finditer(part)
        )
        before = _CONTINUES.search(part)
        continues = (page.parent / before["page"]).resolve() if before else None
        yield Section(page, title, tuple(blocks), continues)


def chains(found: Iterable[Section]) -> Iterator[Section]:
    """Sections that run, each with the blocks of those that continue it."""
    every = [section for section in found if section.runs]
    following: dict[Path, Section] = {}
    for section in every:
        if section.continues:
            other = following.setdefault(section.continues, section)
            assert other is section, f"{section} and {other} continue the same page"
    for section in every:
        if section.continues:
            continue
        blocks, last = section.blocks, section
        while after := following.pop(last.page, None):
            blocks, last = blocks + after.blocks, after
        yield replace(section, blocks=blocks)
    assert not following, f"no section begins the chain of {list(following)}"


def _without_blocks(text: str) -> str:
    """The text with blanks in place of blocks: a comment in a shell script is not a heading."""
    return _BLOCK.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


# What represents others of its kind, the longest first: ids, the last characters of a pod's name,
# numbers.
_LOOSE = re.compile(
    r"(?P<any>…)|(?P<exact>revisions? \d+|\d+ (?:files?|objects?|errors?|warnings?)\b)|"
    r"(?P<id>\b[0-9a-f]{10,64}\b)|(?P<number>\d+)|(?P<space>\s+)"
)
_INSTEAD = {"any": ".*", "id": "[0-9a-f]{10,64}", "number": r"\d+", "space": r"\s+"}


def pattern(line: str) -> re.Pattern[str]:
    """What a line of output has to look like."""
    parts, at = [], 0
    for found in _LOOSE.finditer(line.strip()):
        parts.append(re.escape(line.strip()[at : found.start()]))
        parts.append(
            _INSTEAD.get(str(found.lastgroup)) or re.escape(found.group()).replace(r"\ ", r"\s+")
        )
        at = found.end()
    return re.compile("".join([*parts, re.escape(line.strip()[at:])]) + r"\s*")


def missing(expected: str, output: str) -> str:
    """The first line of `expected` that does not come in `output` after the one before it; nothing
    when all come.
    """
    left = iter(output.splitlines())
    for line in filter(str.strip, expected.splitlines()):
        wanted = pattern(line)
        if not any(wanted.fullmatch(line.strip()) for line in left):
            return line
    return ""


_MARK = "@@ block"


def follow(
    section: Section, directory: Path, environment: Mapping[str, str], language: str = "sh"
) -> None:
    """Runs the blocks of that language in one shell, writes the files of a section, and compares
    the output with its text blocks.
    """
    steps = ["set -euo pipefail"]
    for number, block in enumerate(section.blocks):
        if block.language == language:
            steps += [f"echo; echo '{_MARK} {number}'", block.text]
        elif block.file:
            folder = shlex.quote(str(PurePosixPath(block.file).parent))
            steps.append(f"mkdir -p {folder}\ncat > {shlex.quote(block.file)} <<'END-OF-FILE'")
            steps.append(f"{block.text}END-OF-FILE")
    done = subprocess.run(
        ["bash", "-c", "\n".join(steps)],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{section} ended with {done.returncode}:\n{done.stdout}"
    parts = (part.partition("\n") for part in done.stdout.split(f"{_MARK} ")[1:])
    printed = {int(number): text for number, _, text in parts}
    last: str | None = None
    for number, block in enumerate(section.blocks):
        if block.language == language:
            last = printed[number]
        elif block.language == "text" and last is not None:
            line = missing(block.text, last)
            where = f"{name(block.page)}:{block.line}"
            assert not line, f"{where}: not printed: {line!r}; but:\n{last}"
