"""What a pod needs beside itself: the objects that it names, without which it does not start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.model.objects import Path
from gitops_ds.validate.rule import items, section

# The cluster puts these into every namespace.
ALWAYS_THERE: Final = frozenset((("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")))


def of(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str, str]]:
    """The path of each name in a pod's spec, the kind of what it names, and the name. What is optional is left out."""
    for field in ("serviceAccountName", "serviceAccount"):
        if spec.get(field):
            yield (field,), "ServiceAccount", str(spec[field])
            break
    for index, volume in enumerate(items(spec.get("volumes"))):
        yield from _either(("volumes", index), volume, "configMap", "secret")
        for place, source in enumerate(items(section(volume.get("projected")).get("sources"))):
            yield from _either(("volumes", index, "projected", "sources", place), source, "configMap", "secret")
    for group in ("initContainers", "containers"):
        for index, container in enumerate(items(spec.get(group))):
            for place, source in enumerate(items(container.get("envFrom"))):
                yield from _either((group, index, "envFrom", place), source, "configMapRef", "secretRef")
            for place, variable in enumerate(items(container.get("env"))):
                source = section(variable.get("valueFrom"))
                yield from _either((group, index, "env", place, "valueFrom"), source, "configMapKeyRef", "secretKeyRef")


def _either(way: Path, holder: Mapping[str, Any], config_map: str, secret: str) -> Iterator[tuple[Path, str, str]]:
    for field, kind in ((config_map, "ConfigMap"), (secret, "Secret")):
        named = section(holder.get(field))
        key = "secretName" if named.get("secretName") else "name"
        if named.get(key) and not named.get("optional"):
            yield (*way, field, key), kind, str(named[key])


def claims(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """The PersistentVolumeClaims that a pod's spec names, and the path of each."""
    for index, volume in enumerate(items(spec.get("volumes"))):
        name = section(volume.get("persistentVolumeClaim")).get("claimName")
        if name:
            yield ("volumes", index, "persistentVolumeClaim", "claimName"), str(name)
