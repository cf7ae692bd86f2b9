"""Annotations of the deployer that another writer changed or removed: they state nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gitops_ds.model import names
from gitops_ds.model.daemonset import DaemonSet
from gitops_ds.model.objects import Body


def foreign(live: Body, annotations: Iterable[str]) -> Iterator[str]:
    """Those of these annotations that a live object has, but not by us; none of an object whose
    owners are unknown.

    https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
    """
    metadata = live.get("metadata") or {}
    stated, managers = metadata.get("annotations") or {}, metadata.get("managedFields") or ()
    ours = [
        owned_annotations(one.get("fieldsV1") or {})
        for one in managers
        if one.get("manager") == names.FIELD_MANAGER
    ]
    for name in annotations if managers else ():
        if name in stated and not any(f"f:{name}" in owned for owned in ours):
            yield name


def owned_annotations(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The annotations in a set of fields (`fieldsV1`), each with the prefix `f:`."""
    return (fields.get("f:metadata") or {}).get("f:annotations") or {}


def read_by_rollouts(daemonset: DaemonSet) -> Iterator[str]:
    """The annotations for the rollout of a DaemonSet with a policy that another writer changed or
    removed.

    The deployer always states what is proven, and removes a target only in the write that states
    that its rollout is complete.
    """
    annotations = daemonset.annotations
    yield from foreign(daemonset.raw, names.READ_BY_ROLLOUTS)
    if names.PROVEN not in annotations:
        yield names.PROVEN
    is_complete = annotations.get(names.PHASE, names.COMPLETE) == names.COMPLETE
    if names.TARGET not in annotations and not is_complete:
        yield names.TARGET
