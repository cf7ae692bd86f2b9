"""The references of a pod to ConfigMaps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gitops_ds.model.objects import Body


def names_in(pod_spec: Body) -> frozenset[str]:
    """The names of all ConfigMaps in a pod spec: volumes, projections, environment."""
    return frozenset(name for name in _names(pod_spec) if name)


def _names(pod_spec: Body) -> Iterator[str]:
    for volume in pod_spec.get("volumes") or ():
        yield _name(volume.get("configMap"))
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield _name(source.get("configMap"))
    for group in ("containers", "initContainers", "ephemeralContainers"):
        for container in pod_spec.get(group) or ():
            for source in container.get("envFrom") or ():
                yield _name(source.get("configMapRef"))
            for variable in container.get("env") or ():
                yield _name((variable.get("valueFrom") or {}).get("configMapKeyRef"))


def _name(reference: Any) -> str:
    return str((reference or {}).get("name") or "")
