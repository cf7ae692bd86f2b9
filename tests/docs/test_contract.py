"""docs/reference/ documents the whole program and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest

from gitops_ds import cli
from gitops_ds.checks.schema import repository_files
from gitops_ds.model import names
from gitops_ds.settings import service
from tests.docs import pages
from tests.docs.pages import ROOT

REFERENCE = ROOT / "docs/reference"
SHARED = {
    "options of the repository": "Options of the repository",
    "options of lists": "Options of lists",
    "options of the connection": "Options of the connection",
    "common options": "Common options",
}


def parts() -> Mapping[str, str]:
    """The text of the page of all commands below every heading, by the heading."""
    text = (REFERENCE / "command-line.md").read_text("utf-8")
    found = re.split(r"^###? (.+)$", text, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def options_in(text: str) -> set[str]:
    """The options that the items of lists begin with."""
    items = re.findall(r"^- ((?:`-[^`]+`(?:, )?)+):", text, re.MULTILINE)
    return {option for item in items for option in re.findall(r"`(-[^`]+)`", item)}


def documented() -> Mapping[str, tuple[str, set[str]]]:
    """Each command's usage and options as its page has them."""
    shared = {words: options_in(parts()[title]) for words, title in SHARED.items()}
    assert all(shared.values())
    found = {}
    for page in (REFERENCE / "commands").glob("*.md"):
        text = page.read_text("utf-8")
        usage = re.match(r"# gitops-ds (\S+)\n\n```console\ngitops-ds \1(.*)\n```\n", text)
        assert usage, page.name
        assert usage[1] == page.stem
        takes = re.search(r"^Takes .*$", text, re.MULTILINE)
        also = [shared[words] for words in SHARED if takes and words in takes[0]]
        found[usage[1]] = (usage[2].strip(), options_in(text).union(*also))
    return found


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli.cli)
    for name in cli.cli.list_commands(context):
        command = cli.cli.get_command(context, name)
        assert command is not None
        yield name, command


def test_every_command_is_documented_and_no_other() -> None:
    assert set(documented()) == {name for name, _ in commands()}


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_option_is_documented_and_no_other(name: str) -> None:
    command = dict(commands())[name]
    real = {
        word
        for p in command.params
        if isinstance(p, click.Option)
        for word in (*p.opts, *p.secondary_opts)
        if word != getattr(p, "alias", None)
    }
    assert documented()[name][1] == real


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_the_arguments_are_documented(name: str) -> None:
    command = dict(commands())[name]
    real = [p for p in command.params if isinstance(p, click.Argument)]
    assert len(documented()[name][0].split()) == len(real)
    for word, argument in zip(documented()[name][0].split(), real, strict=True):
        assert word.startswith("[") != argument.required, word


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_option_has_its_variable(name: str) -> None:
    for parameter in dict(commands())[name].params:
        if isinstance(parameter, click.Option):
            long = next(word for word in parameter.opts if word.startswith("--"))
            first = [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar
            assert first is not None
            assert first[0] == "GITOPS_DS_" + long[2:].upper().replace("-", "_")


def test_every_variable_that_is_named_is_read() -> None:
    of_options = {
        name
        for _, command in commands()
        for option in command.params
        for name in ([option.envvar] if isinstance(option.envvar, str) else option.envvar or ())
    }
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "gitops_ds").rglob("*.py"))
    for page in pages.PAGES:
        for name in set(re.findall(r"GITOPS_DS_[A-Z_]*[A-Z]", page.read_text("utf-8"))):
            assert name in of_options or f'"{name}"' in source, f"{pages.name(page)}: {name}"


def test_every_label_and_annotation_is_documented_and_no_other() -> None:
    known = {
        value
        for name, value in vars(names).items()
        if name.isupper() and str(value).startswith(f"{names.DOMAIN}/")
    }
    known.discard(names.API_VERSION)
    text = (REFERENCE / "labels.md").read_text("utf-8")
    said = set(re.findall(rf"`({re.escape(names.DOMAIN)}/[a-z-]+)`", text))
    assert said == known


def test_the_keys_of_json_are_those_of_the_schemas() -> None:
    files = {"check": "check-report", "plan": "plan", "history": "history", "get": "status-list"}
    text = (REFERENCE / "json.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)`.*?\| \w+ \| (.*) \|$", text, re.MULTILINE))
    for command, file in files.items():
        schema = json.loads((ROOT / f"schemas/{file}.schema.json").read_text())
        assert set(schema["properties"]) - {"apiVersion", "kind"} == set(
            re.findall(r"`(\w+)`", rows[command])
        ), command


def settings(schema: Mapping[str, object] | None = None, prefix: str = "") -> Iterator[str]:
    """Every setting of the schema, as `group.name`; of lists and open mappings the name alone."""
    whole = repository_files.schema("settings")
    below = (schema or whole).get("properties")
    assert isinstance(below, Mapping)
    for name, key in below.items():
        one = key
        shared = str(one.get("$ref", "")).removeprefix("#/$defs/")
        # The groups below repository.apply are those of apply.
        if shared in whole["$defs"] and prefix != "repository.apply.":
            one = {**whole["$defs"][shared], **one}
        if isinstance(one, Mapping) and "properties" in one:
            yield from settings(one, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def idle(name: str) -> bool:
    """Whether the setting has no effect yet."""
    group, _, rest = name.partition(".")
    known = service.WITHOUT_EFFECT.get(group, ())
    return rest in known or rest.partition(".")[0] in known


def test_every_setting_with_an_effect_is_documented_and_no_other() -> None:
    table = (REFERENCE / "settings.md").read_text("utf-8")
    said = [
        name
        for row in re.findall(r"^\| (`[a-z][\w., `]+`) \|", table, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    ]
    assert len(said) == len(set(said))
    assert set(said) == {name for name in settings() if not idle(name)}


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
