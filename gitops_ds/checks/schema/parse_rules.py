"""Rules without a check: their findings come from the parser (yaml/parser.py) and the schemas
(manifests.py).
"""

from __future__ import annotations

from typing import Final

from gitops_ds.checks.engine.rule import ObjectRule, advice, no_violations, refused
from gitops_ds.model.finding import Severity

RULES: Final[tuple[ObjectRule, ...]] = (
    refused("DS001", "file is not valid YAML", no_violations),
    refused("DS002", "duplicate key in an object", no_violations),
    refused("DS003", "unknown field", no_violations),
    refused("DS004", "value has the wrong type", no_violations),
    advice("DS007", Severity.WARNING, "value is ambiguous in YAML", no_violations),
    refused("DS008", "API version is not served", no_violations),
    refused("DS009", "field is missing in a declared Kubernetes version", no_violations),
)
