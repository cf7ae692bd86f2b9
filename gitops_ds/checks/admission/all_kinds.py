"""DS005 and DS006 for all kinds: required fields, allowed values."""

from __future__ import annotations

from collections.abc import Iterator

from gitops_ds.checks.admission import companions, containers, pods, resources, volumes
from gitops_ds.checks.engine.rule import Violation, pod_path, rule
from gitops_ds.core.objects import Body
from gitops_ds.source.rules import INVALID_VALUE, MISSING_FIELD


@rule(MISSING_FIELD)
def missing(body: Body) -> Iterator[Violation]:
    """An empty string counts as absent, and some fields require others."""
    yield from companions.missing(body)
    if pod_path(body) is not None:
        yield from pods.missing(body)
        yield from containers.missing(body)
        yield from volumes.missing(body)


@rule(INVALID_VALUE)
def values(body: Body) -> Iterator[Violation]:
    """Values out of range, and values that exclude each other."""
    yield from companions.values(body)
    if pod_path(body) is not None:
        yield from pods.values(body)
        yield from containers.values(body)
        yield from volumes.values(body)
        yield from resources.claims(body)
