"""DS005, DS006 and DS011 of every kind together: what is missing, values that a field does not take, names that can't be."""

from __future__ import annotations

from collections.abc import Iterator

from gitops_ds.model.objects import Body, Path
from gitops_ds.validate import (
    bindings,
    companion_fields,
    container_fields,
    named_fields,
    naming,
    pod_fields,
    resource_fields,
    volume_fields,
)
from gitops_ds.validate.rule import pod_path


def missing(body: Body) -> Iterator[tuple[Path, str]]:
    """DS005: an empty text is an absent field to the API server, and some fields are asked for by others."""
    yield from companion_fields.missing(body)
    yield from bindings.accounts_have_a_namespace(body)
    if pod_path(body) is not None:
        yield from pod_fields.missing(body)
        yield from container_fields.missing(body)
        yield from volume_fields.missing(body)


def values(body: Body) -> Iterator[tuple[Path, str]]:
    """DS006: a value out of range, or one that excludes another."""
    yield from companion_fields.values(body)
    if pod_path(body) is not None:
        yield from pod_fields.values(body)
        yield from container_fields.values(body)
        yield from volume_fields.values(body)
        yield from resource_fields.claims(body)


def names(body: Body) -> Iterator[tuple[Path, str]]:
    """DS011: the names of the object, and those in it."""
    yield from naming.names(body)
    yield from named_fields.names(body)
