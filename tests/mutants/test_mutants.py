"""The tables of the mutation run name what exists."""

from __future__ import annotations

import tomllib

import pytest

from tests.mutants import __main__ as run
from tests.mutants.operators import mutants

EXPLAINED: dict[str, dict[str, str]] = tomllib.loads(run.EXPLAINED.read_text())


def test_each_module_that_is_changed_has_tests() -> None:
    named = [run.tests_of(path.relative_to(run.ROOT).as_posix()) for path in run.modules()]
    assert named
    assert {path for paths in named for path in paths if not (run.ROOT / path).exists()} == set()


@pytest.mark.parametrize("module", sorted(EXPLAINED))
def test_each_explanation_has_a_mutant(module: str) -> None:
    assert EXPLAINED[module].keys() - {mutant.key for mutant in mutants(run.ROOT / module)} == set()


@pytest.mark.parametrize("module", sorted(run.FURTHER))
def test_each_module_with_further_tests_exists(module: str) -> None:
    assert (run.ROOT / module) in run.modules()
