"""docs/architecture.md draws the layers that import-linter holds, docs/internals.md names nouns
that exist; no module imports itself through others, a class name belongs to one class, and modules
are short.
"""

from __future__ import annotations

import ast
import importlib
import math
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from gitops_ds.core import names
from gitops_ds.core.rate_limits import Backoff
from gitops_ds.rollouts.state import keys
from tests.docs.pages import ROOT
from tests.docs.sources import PARSED, texts, trees

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
INTERNALS = (ROOT / "docs/internals.md").read_text(encoding="utf-8")


def imported(name: str) -> Iterator[str]:
    """The modules of the package that a module imports, also lazily and for types alone."""
    for node in ast.walk(trees()[name]):
        if isinstance(node, ast.ImportFrom) and node.module and node.module in trees():
            for member in node.names:
                whole = f"{node.module}.{member.name}"
                yield whole if whole in trees() else node.module
        elif isinstance(node, ast.Import):
            yield from (member.name for member in node.names if member.name in trees())


@cache
def imports() -> Mapping[str, frozenset[str]]:
    return {name: frozenset(imported(name)) - {name} for name in trees()}


def on_the_way_back(name: str) -> set[str]:
    """The modules that `name` imports, directly or not, and that import it, directly or not."""
    seen: set[str] = set()
    ahead = [name]
    while ahead:
        for module in imports()[ahead.pop()] - seen:
            seen.add(module)
            ahead.append(module)
    return seen if name in seen else set()


def test_the_picture_shows_the_layers_that_are_enforced() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    picture = PAGE.split("## Layers")[1].split("```")[1].strip().splitlines()
    drawn = [re.split(r"\s{2,}", line)[0].split(" │ ") for line in picture]
    assert [set(line) for line in drawn] == [set(layer.split(" | ")) for layer in layers]


def nouns() -> list[tuple[str, str]]:
    rows = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", INTERNALS, re.MULTILINE)
    return [(noun, f"gitops_ds.{module}") for noun, module in rows]


@pytest.mark.parametrize(("noun", "module"), nouns(), ids=lambda value: value)
def test_each_noun_of_the_glossary_exists(noun: str, module: str) -> None:
    assert hasattr(importlib.import_module(module), noun)


@PARSED
@pytest.mark.parametrize("page", ["internals", "performance"])
def test_each_module_that_a_page_names_exists(page: str) -> None:
    packages = "|".join(sorted({name.split(".")[1] for name in trees() if name.count(".") > 1}))
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    named = set(re.findall(rf"`((?:{packages})/[\w/]+)(?:\.py)?`", text))
    assert named
    assert {name for name in named if f"gitops_ds.{name.replace('/', '.')}" not in trees()} == set()


@PARSED
def test_each_module_that_a_docstring_names_exists() -> None:
    """By its package and its name, or with a name of it: `reverts.revert_plan.plans`."""
    known = {part for name in trees() for part in parts_of(name)}
    wrong = {
        (name, dotted)
        for name, text in texts().items()
        for dotted in re.findall(r"`((?!aiohttp\.|listen\.|details\.)[a-z_]+(?:\.[a-z_]+)+)`", text)
        for package, _, last in [dotted.rpartition(".")]
        if {last, package.rpartition(".")[2]} & known and not {dotted, package} & known
    }
    assert wrong == set()


def parts_of(name: str) -> Iterator[str]:
    """A dotted name, also without its first parts."""
    yield name
    while name := name.partition(".")[2]:
        yield name


def test_the_glossary_has_at_most_forty_nouns() -> None:
    assert 20 <= len(nouns()) <= 40


@PARSED
def test_no_module_imports_itself_through_others() -> None:
    assert {name for name in trees() if on_the_way_back(name)} == set()


@PARSED
def test_a_class_name_belongs_to_one_class() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(name)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


@PARSED
def test_each_back_off_has_its_row() -> None:
    rows = re.findall(
        r"^\| `([\w.]+)` \| .* \| ([\d.]+) s \| (?:([\d.]+) s|none) \|$", INTERNALS, re.M
    )
    listed = sorted((f"gitops_ds.{name}", float(a), float(b or math.inf)) for name, a, b in rows)
    users = [
        name
        for name, text in texts().items()
        if re.search(r"^\w+(: Final)? = .*(Backoff|BACKOFF)\b", text, re.M)
        and not name.startswith("gitops_ds.testing")
    ]
    backoffs = sorted(
        (name, value.first, value.longest)
        for name in users
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, Backoff)
    )
    assert listed == backoffs, "change the table of docs/internals.md"


def spelled(tree: ast.Module) -> Iterator[str]:
    """The texts of a module, also those that begin with `names.DOMAIN`."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.JoinedStr(values=[ast.FormattedValue(value=value), ast.Constant(str(end))]):
                yield f"{names.DOMAIN if ast.unparse(value) == 'names.DOMAIN' else ''}{end}"


@PARSED
def test_only_the_state_of_a_rollout_spells_its_annotations() -> None:
    """Import-linter holds that it alone imports their names."""
    prefix = f"{names.DOMAIN}/"
    of_rollouts = {text for text in vars(keys).values() if str(text).startswith(prefix)}
    assert keys.TARGET in of_rollouts
    found = {name for name, tree in trees().items() if of_rollouts & {*spelled(tree)}}
    assert found == {keys.__name__}


def test_modules_have_at_most_450_lines() -> None:
    assert {name for name, text in texts().items() if len(text.splitlines()) > 450} == set()
