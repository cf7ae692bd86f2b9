"""The modules of the package, parsed once for the tests of a worker: those with the mark PARSED."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache

import pytest

from tests.docs.pages import ROOT

PARSED = pytest.mark.xdist_group("parsed_sources")


@cache
def texts() -> Mapping[str, str]:
    """The text of every module, by its dotted name."""
    files = sorted((ROOT / "gitops_ds").rglob("*.py"))
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(
            ".__init__"
        ): file.read_text(encoding="utf-8")
        for file in files
    }


@cache
def trees() -> Mapping[str, ast.Module]:
    """Every module, parsed, by its dotted name."""
    return {name: ast.parse(text) for name, text in texts().items()}
