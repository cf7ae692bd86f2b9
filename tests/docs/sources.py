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


@cache
def attributes(*packages: str) -> frozenset[str]:
    """The names of all attributes that a module of these packages reads."""
    return frozenset(
        node.attr
        for name, tree in trees().items()
        if name.startswith(tuple(f"gitops_ds.{package}." for package in packages))
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )
