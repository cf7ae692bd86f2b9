"""What is installed: every package is used, and docs/install.md lists it with its size."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.ci_files import files
from tests.ci_files.test_release import releasing
from tests.docs.sources import PARSED, trees

PAGE = (files.ROOT / "docs/install.md").read_text()
# Installed, but loaded by no module that gitops-ds imports.
NOT_LOADED = {
    "aiohttp-retry": "required by kubernetes, for its asyncio client",
    "markdown-it-py": "required by rich, for Markdown",
    "mdurl": "required by markdown-it-py",
    "pycparser": "required by cffi, for compilers",
    "pygments": "required by rich, for source code",
    "tzdata": "required by kubernetes, for systems without time zones",
}
LOAD = """
import contextlib, importlib, importlib.metadata, json, sys
for name in json.loads(sys.argv[1]):
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(name)
owners = importlib.metadata.packages_distributions()
tops = {name.split(".")[0] for name in list(sys.modules)}
print(json.dumps(sorted({one for top in tops for one in owners.get(top, ())})))
"""


def normal(name: str) -> str:
    """The name of a package as in the lock: https://peps.python.org/pep-0503/"""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> set[str]:
    """The packages of the lock that run, by marker of this platform."""
    lock = releasing.runtime_lock(files.LOCK.read_text())
    names = {normal(name) for name in re.findall(r"(?m)^([a-z0-9][a-z0-9.-]*)==", lock)}
    present = {normal(distribution.name) for distribution in importlib.metadata.distributions()}
    return names & present


def imported_modules() -> set[str]:
    """Every module of another package that a source of gitops_ds imports, also inside functions."""
    names: set[str] = set()
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    own = sys.stdlib_module_names | {"gitops_ds"}
    return {name for name in names if name.split(".")[0] not in own}


def loaded() -> set[str]:
    """The packages of all modules in a process that imports the modules above."""
    words = [sys.executable, "-W", "ignore", "-c", LOAD, json.dumps(sorted(imported_modules()))]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return {normal(name) for name in json.loads(done.stdout)}


def declared() -> set[str]:
    project = tomllib.loads((files.ROOT / "pyproject.toml").read_text())["project"]
    return {normal(re.split(r"[\[<>=; ]", one)[0]) for one in project["dependencies"]}


def table() -> dict[str, tuple[int, set[str]]]:
    """By declared package its megabytes and the packages that it brings."""
    rows = re.findall(r"^\| `([\w.-]+)` \| (\d+) \| [^|]+ \| ([^|]*) \|$", PAGE, re.M)
    return {
        name: (int(size), {one for one in brought.replace("`", "").split(", ") if one.strip()})
        for name, size, brought in rows
    }


def mebibytes(name: str) -> float:
    """The size of a package without bytecode."""
    paths = importlib.metadata.distribution(name).files or ()
    real = [Path(str(path.locate())) for path in paths if not str(path).endswith(".pyc")]
    return sum(path.stat().st_size for path in real if path.exists()) / 2**20


@PARSED
@pytest.mark.slow
def test_every_package_is_loaded_by_a_module_that_is_imported_or_has_a_reason() -> None:
    assert installed() - loaded() == set(NOT_LOADED)


@PARSED
@pytest.mark.slow
def test_every_declared_dependency_is_imported() -> None:
    owners = importlib.metadata.packages_distributions()
    tops = {name.split(".")[0] for name in imported_modules()}
    direct = {normal(owner) for top in tops for owner in owners.get(top, ())}
    assert declared() <= direct


def test_traces_are_an_extra() -> None:
    assert not {name for name in installed() if name.startswith("opentelemetry")}


def test_the_page_lists_every_package_once() -> None:
    rows = table()
    assert set(rows) == declared()
    brought = [name for _, names in rows.values() for name in names]
    assert len(brought) == len(set(brought))
    assert set(rows) | set(brought) == installed()
    for name, reason in NOT_LOADED.items():
        assert name in PAGE, reason


@pytest.mark.parametrize("name", sorted(table()))
def test_the_size_on_the_page_is_measured(name: str) -> None:
    size, brought = table()[name]
    measured = mebibytes(name) + sum(mebibytes(one) for one in brought)
    assert abs(measured - size) <= max(1.5, 0.2 * measured), f"{name}: {measured:.1f} MiB"
