"""Rules over a whole repository: what rendering finds in its own files, what belongs to no cluster,
what comes out otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from gitops_ds.checks.engine.rule import ObjectRule, Violation, advice, no_violations, refused
from gitops_ds.model.bundle import Bundle
from gitops_ds.model.finding import Place, Severity
from gitops_ds.model.snapshot import Snapshot

SAME_TWICE: Final[ObjectRule] = advice(
    "DS805",
    Severity.ERROR,
    "a commit renders to the same objects each time",
    no_violations,
    on=False,
)
_HAS_A_CLUSTER: Final[ObjectRule] = advice(
    "DS806", Severity.ERROR, "an environment has a cluster", no_violations, on=False
)

# What is refused here, DS016 and DS804 is found while rendering (gitops_ds/render).
RULES: Final[tuple[ObjectRule, ...]] = (
    refused("DS602", "the variants of an agent share no node, whatever its labels", no_violations),
    refused(
        "DS603",
        "the variants of an agent leave out no node that it counts on, whatever its labels",
        no_violations,
    ),
    refused("DS801", "what the repository means can be rendered", no_violations),
    refused("DS802", "names that are used are known", no_violations),
    refused("DS803", "what is written for something finds it", no_violations),
    advice("DS804", Severity.INFO, "what is there is used", no_violations),
    advice(
        "DS804", Severity.WARNING, "something in the repository is for a cluster", no_violations
    ),
    SAME_TWICE,
    refused("DS806", "the environment of a cluster is there", no_violations),
    _HAS_A_CLUSTER,
    refused("DS807", "nothing is written that is not implemented yet", no_violations),
    advice("DS016", Severity.WARNING, "a file holds whole objects", no_violations),
)


def check(bundles: Sequence[Bundle], snapshot: Snapshot) -> Iterator[tuple[ObjectRule, Place, str]]:
    """DS806: an environment that no cluster names is for nobody. `bundles` are those of all
    clusters.
    """
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
                f"no cluster is in the environment {path.stem}: name it under `environment:` of a "
                "cluster, or remove it"
            )
            yield _HAS_A_CLUSTER, Place(str(path), 1, 1), message


def differences(one: Bundle, again: Bundle) -> Iterator[Violation]:
    """DS805: the objects that are not the same the second time."""
    for key in sorted({*one.manifests, *again.manifests}):
        first, second = one.manifests.get(key), again.manifests.get(key)
        if first is None or second is None:
            yield Violation(
                (),
                f"{key} is made at one time and not at another: a commit must always mean the same",
                object=key,
            )
        elif first.digest != second.digest:
            message = (
                "it comes out otherwise each time, so that every check sees a change and pods "
                "restart for nothing"
            )
            yield Violation(
                (), f"{message}: look for random values and dates in what makes it", object=key
            )
