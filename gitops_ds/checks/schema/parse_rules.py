"""Rules without a function of their own: what reading a file (yaml/parser.py) and its schemas
(manifests.py) tell.
"""

from __future__ import annotations

from typing import Final

from gitops_ds.checks.engine.rule import Rule, advice, refused
from gitops_ds.model.finding import Severity

RULES: Final[tuple[Rule, ...]] = (
    refused("DS001", "a file can be read as YAML", lambda _: ()),
    refused("DS002", "a key stands once in a mapping", lambda _: ()),
    refused("DS003", "fields are those that the kind has", lambda _: ()),
    refused("DS004", "values are of the sort that the field takes", lambda _: ()),
    advice("DS007", Severity.WARNING, "every reader reads the same", lambda _: ()),
    refused("DS008", "the kind is served in this version of its API", lambda _: ()),
    refused("DS009", "every declared version of Kubernetes has the field", lambda _: ()),
)
