"""Rules over a whole repository: invalid files, environments without a cluster, rendering that is
not reproducible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from gitops_ds.checks.engine.rule import ObjectRule, Violation, advice, no_violations, refused
from gitops_ds.core.finding import Place, Severity
from gitops_ds.core.objects import Path
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.core.sources.source_tree import SourceTree

SAME_TWICE: Final[ObjectRule] = advice(
    "DS805",
    Severity.ERROR,
    "rendering is not reproducible",
    no_violations,
)
_HAS_A_CLUSTER: Final[ObjectRule] = advice(
    "DS806", Severity.ERROR, "environment has no cluster", no_violations, on=False
)

# Rendering finds the violations of blocking rules here, DS016 and DS804 (gitops_ds/source/render).
RULES: Final[tuple[ObjectRule, ...]] = (
    refused("DS602", "variants of an agent can share a node", no_violations),
    refused(
        "DS603",
        "variants of an agent can leave out an expected node",
        no_violations,
    ),
    refused("DS801", "repository cannot be rendered", no_violations),
    refused("DS802", "name is not defined", no_violations),
    refused("DS803", "override or patch matches nothing", no_violations),
    advice("DS804", Severity.INFO, "file is never used", no_violations),
    refused("DS804", "files with objects are not read", no_violations),
    advice(
        "DS804", Severity.WARNING, "no object of the repository is for a cluster", no_violations
    ),
    SAME_TWICE,
    refused("DS806", "environment not found", no_violations),
    _HAS_A_CLUSTER,
    refused("DS808", "rollout policy cannot be carried out", no_violations),
    advice("DS016", Severity.WARNING, "object has no apiVersion and kind", no_violations),
)


def check(
    bundles: Sequence[Bundle], snapshot: SourceTree
) -> Iterator[tuple[ObjectRule, Place, str]]:
    """DS806: an environment without a cluster. `bundles` are those of all clusters."""
    named = {bundle.cluster.environment for bundle in bundles}
    if PurePosixPath("gitops-ds.yaml") not in snapshot.files:
        return
    for path in sorted(snapshot.files):
        if (
            len(path.parts) == 2
            and path.parts[0] == "environments"
            and path.suffix == ".yaml"
            and path.stem not in named
        ):
            message = (
                f"environment {path.stem} has no cluster: set it as `environment:` of a cluster, "
                f"or remove it"
            )
            yield _HAS_A_CLUSTER, Place(str(path), 1, 1), message


def differences(one: Bundle, again: Bundle) -> Iterator[Violation]:
    """DS805: the objects that differ in a second rendering."""
    for key in sorted({*one.manifests, *again.manifests}):
        first, second = one.manifests.get(key), again.manifests.get(key)
        if first is None or second is None:
            yield Violation(
                (),
                f"{key} is rendered in one run and not in another: a commit must always render to "
                f"the same objects",
                object=key,
            )
        elif first.digest != second.digest:
            message = (
                "the rendered object differs in each run, so that every check reports a change and "
                "pods restart without need"
            )
            yield Violation(
                _first_difference(first.body, second.body),
                f"{message}: look for random values and dates in its template",
                object=key,
            )


def _first_difference(one: Any, other: Any) -> Path:
    """The path of the first value that differs; empty if one body alone has it."""
    fields: Iterable[tuple[str | int, Any, Any]] = ()
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        fields = ((key, value, other[key]) for key, value in one.items() if key in other)
    elif isinstance(one, list) and isinstance(other, list):
        fields = ((index, *values) for index, values in enumerate(zip(one, other, strict=False)))
    return next(
        ((step, *_first_difference(left, right)) for step, left, right in fields if left != right),
        (),
    )
