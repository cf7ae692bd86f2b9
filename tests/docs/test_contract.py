"""docs/reference/ documents the whole program and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gitops_ds.cli.get import tables
from gitops_ds.core import names
from gitops_ds.forges import forge_access
from gitops_ds.forges.contract import ForgeKind
from gitops_ds.notify.notifications import MessageFormat
from gitops_ds.rollouts.state import keys
from gitops_ds.service.settings import service
from tests.cli.commands import COMMANDS, OPTIONS
from tests.docs import pages
from tests.docs.pages import ROOT

REFERENCE = ROOT / "docs/reference"


def variables(option: click.Option) -> list[str]:
    return [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=lambda one: getattr(one, "name", one))
def test_every_option_has_its_variable(name: str, option: click.Option) -> None:
    long = next(word for word in option.opts if word.startswith("--"))
    assert variables(option)[0] == "GITOPS_DS_" + long[2:].upper().replace("-", "_"), name


def named() -> Iterator[tuple[str, str]]:
    """Each command line of gitops-ds in inline code and in blocks that do not run, by its page."""
    for page in pages.PAGES:
        text = page.read_text("utf-8")
        blocks = [b.text for s in pages.sections(page) for b in s.blocks if b.language == "console"]
        for line in [*re.findall(r"`([^`\n]+)`", text), *"\n".join(blocks).splitlines()]:
            for found in re.finditer(
                r"(?<!-n )\bgitops-ds ([a-z][a-z-]*\b(?!/)(?: [^|;&>#]*)?)", line
            ):
                yield pages.name(page), found[1]


def test_every_command_and_option_that_is_named_exists() -> None:
    count = 0
    for page, line in named():
        name, *words = line.split()
        assert name in COMMANDS, f"{page}: gitops-ds {line}"
        count += 1
        options = {word for p in COMMANDS[name].params for word in (*p.opts, *p.secondary_opts)}
        used = [word.partition("=")[0] for word in words if re.match("--?[a-zA-Z]", word)]
        unknown = {word for word in used if word not in options | {"--help", "-h", "-vv"}}
        assert not unknown, f"{page}: gitops-ds {line}: {unknown}"
    assert count > 200


def test_the_table_of_get_in_a_page_has_its_columns() -> None:
    heads = {
        (pages.name(page), line)
        for page in pages.PAGES
        for line in re.findall(r"^NAMESPACE .* DESIRED .*", page.read_text("utf-8"), re.MULTILINE)
    }
    assert heads
    for page, line in heads:
        assert re.split(" {2,}", line.strip()) == tables.HEAD, f"change the table of {page}"


def test_every_variable_that_is_named_is_read() -> None:
    of_options = {name for _, option in OPTIONS for name in variables(option)}
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "gitops_ds").rglob("*.py"))
    for page in pages.PAGES:
        for name in set(re.findall(r"GITOPS_DS_[A-Z_]*[A-Z]", page.read_text("utf-8"))):
            assert name in of_options or f'"{name}"' in source, f"{pages.name(page)}: {name}"


def test_every_forge_and_format_of_notifications_is_documented() -> None:
    checks = (ROOT / "docs/checks.md").read_text("utf-8")
    notifications = (ROOT / "docs/notifications.md").read_text("utf-8")
    for kind in ForgeKind:
        assert f"\n| {forge_access.api(kind).name} | " in checks, f"{kind}: docs/checks.md"
    for format in MessageFormat:
        assert f"- `format: {format}` " in notifications, f"{format}: docs/notifications.md"


def test_every_label_and_annotation_is_documented_and_no_other() -> None:
    known = {
        value
        for name, value in {**vars(names), **vars(keys)}.items()
        if name.isupper() and str(value).startswith(f"{names.DOMAIN}/")
    }
    known.discard(names.API_VERSION)
    text = (REFERENCE / "labels.md").read_text("utf-8")
    documented = set(re.findall(rf"`({re.escape(names.DOMAIN)}/[a-z-]+)`", text))
    assert documented == known


def test_the_settings_of_every_page_are_right(tmp_path: Path) -> None:
    every = [b for page in pages.PAGES for s in pages.sections(page) for b in s.blocks]
    blocks = [b for b in every if b.file.endswith("settings.yaml")]
    assert len(blocks) > 4
    for block in blocks:
        file = tmp_path / "settings.yaml"
        file.write_text(block.text, "utf-8")
        settings = service.read(str(file))
        if block.page == REFERENCE / "settings.md":
            assert settings.repositories[0].url
