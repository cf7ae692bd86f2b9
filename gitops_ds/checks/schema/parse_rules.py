"""Rules without a function of their own: what reading a file (yaml/parser.py) and its schemas
(manifests.py) tell.
"""

from __future__ import annotations

from typing import Final

from gitops_ds.checks.engine.rule import ObjectRule, advice, no_violations, refused
from gitops_ds.model.finding import Severity

RULES: Final[tuple[ObjectRule, ...]] = (
    refused("DS001", "a file can be read as YAML", no_violations),
    refused("DS002", "a key stands once in a mapping", no_violations),
    refused("DS003", "fields are those that the kind has", no_violations),
    refused("DS004", "values are of the sort that the field takes", no_violations),
    advice("DS007", Severity.WARNING, "every reader reads the same", no_violations),
    refused("DS008", "the kind is served in this version of its API", no_violations),
    refused("DS009", "every declared version of Kubernetes has the field", no_violations),
)
