"""Rules over a whole repository: invalid files, environments without a cluster, rendering that is
not reproducible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from gitops_ds.checks.engine.rule import Violation
from gitops_ds.core.finding import Place, Severity, advice
from gitops_ds.core.objects import Path
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.core.sources.source_tree import SourceTree

SAME_TWICE: Final = advice("DS805", Severity.ERROR, "rendering is not reproducible")
NO_CLUSTER: Final = advice("DS806", Severity.ERROR, "environment has no cluster", on=False)


def check(bundles: Sequence[Bundle], snapshot: SourceTree) -> Iterator[tuple[Place, str]]:
    """An environment without a cluster. `bundles` are those of all clusters."""
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
            yield Place(str(path), 1, 1), message


def differences(one: Bundle, again: Bundle) -> Iterator[Violation]:
    """The objects that differ in a second rendering."""
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
