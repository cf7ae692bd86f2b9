"""docs/reference/: the generated parts are up to date, and the rest is complete."""

from __future__ import annotations

import re
import runpy
from collections import defaultdict
from pathlib import Path

import pytest

from gitops_ds.cli import command_table
from tests.docs.pages import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts/referencing.py"))
REFERENCE = ROOT / "docs/reference"
PAGES: dict[Path, str] = dict(SCRIPT["pages"]())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_generated_parts_are_up_to_date(page: Path) -> None:
    assert page.read_text("utf-8") == PAGES[page], "run `make generate`"


def test_every_command_has_a_page_and_no_other() -> None:
    pages = {page.stem for page in (REFERENCE / "commands").glob("*.md")}
    assert pages == set(command_table.COMMANDS), "run `make generate`"


@pytest.mark.parametrize("name", list(command_table.COMMANDS))
def test_the_page_of_a_command_describes_it_and_has_an_example(name: str) -> None:
    text = (REFERENCE / f"commands/{name}.md").read_text("utf-8")
    description = text.partition("<!-- end: usage -->")[2].partition("\n## ")[0]
    assert description.strip(), f"describe {name} after its usage in docs/reference/commands/"
    assert "\n## Example" in text, f"add an example to docs/reference/commands/{name}.md"


@pytest.mark.parametrize("name", list(command_table.COMMANDS))
def test_an_option_that_the_text_of_a_page_names_exists(name: str) -> None:
    text = (REFERENCE / f"commands/{name}.md").read_text("utf-8")
    table = set(re.findall(r"`(-[\w-]+)[ `]", text.partition("generated: options")[2]))
    notes = re.findall(r"^- `(--[\w-]+)`", text, re.MULTILINE)
    assert set(notes) <= table


def test_a_part_that_a_page_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="no part 'b'"):
        SCRIPT["replaced"]("# A\n\n<!-- generated: a -->\n<!-- end: a -->\n", {"b": ""})


def test_only_the_generated_part_is_replaced() -> None:
    page = "# A\n\n<!-- generated: a -->\nold\n<!-- end: a -->\n\nText.\n"
    replaced = SCRIPT["replaced"](page, {"a": "new"})
    assert replaced == page.replace("old", "new")


def test_every_event_is_documented_with_its_type_and_topic() -> None:
    """The reasons and topics are those of tests/report/goldens/public_names.txt."""
    golden = (ROOT / "tests/report/goldens/public_names.txt").read_text("utf-8")
    topics: dict[tuple[str, str], set[str]] = defaultdict(set)
    for line in golden.splitlines():
        kube = re.search(r"; kube: ([^;]*)", line)
        topic = re.search(r"notification: (\w+)", line)
        for one in kube[1].split(", ") if kube else ():
            kind, reason, *_ = one.split()
            topics[reason, kind] |= {topic[1]} if topic else set()
    documented: dict[tuple[str, str], str] = {}
    page = (REFERENCE / "events.md").read_text("utf-8")
    for row in re.findall(r"^\| ([A-Z].*) \|$", page, re.MULTILINE):
        reasons, kind, *rest = (cell.strip() for cell in row.split("|"))
        for reason in reasons.split(", "):
            documented[reason, kind] = rest[0].strip("`") if len(rest) == 2 else ""
    assert set(documented) == set(topics) | {("LeaderElected", "Normal")}
    for event, named in documented.items():
        assert named in (topics[event] or {""}), event
