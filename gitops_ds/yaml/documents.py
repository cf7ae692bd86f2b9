"""The content of a parsed YAML file."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gitops_ds.core.finding import Finding, Severity, advice

AMBIGUOUS: Final = advice("DS007", Severity.WARNING, "value is ambiguous in YAML")


class Document(msgspec.Struct, frozen=True):
    """One document of a file: its index, from 0, and its value as dict, list, str, int, float, bool
    or None.
    """

    index: int
    value: Any


class Parsed(msgspec.Struct, frozen=True):
    """The documents of a file (empty ones are omitted but counted), and the findings on its YAML.

    After a syntax error or an exceeded limit, the documents before it.
    """

    documents: tuple[Document, ...]
    findings: tuple[Finding, ...]
