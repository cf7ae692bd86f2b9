"""DS005 and DS006 for all kinds: required fields, allowed values."""

from __future__ import annotations

from collections.abc import Iterator

from gitops_ds.checks.admission import companions, containers, pods, resources, volumes
from gitops_ds.checks.engine.rule import Violation, pod_path
from gitops_ds.core.objects import Body


def missing(body: Body) -> Iterator[Violation]:
    """DS005: an empty string counts as absent, and some fields require others."""
    yield from companions.missing(body)
    if pod_path(body) is not None:
        yield from pods.missing(body)
        yield from containers.missing(body)
        yield from volumes.missing(body)


def values(body: Body) -> Iterator[Violation]:
    """DS006: values out of range, and values that exclude each other."""
    yield from companions.values(body)
    if pod_path(body) is not None:
        yield from pods.values(body)
        yield from containers.values(body)
        yield from volumes.values(body)
        yield from resources.claims(body)
