"""References of a pod: the objects that it requires to start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.checks.engine.rule import items, section
from gitops_ds.core.objects import Path

# The cluster creates these in every namespace.
ALWAYS_THERE: Final = frozenset((("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")))


def of(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str, str]]:
    """The references of a pod spec: path, kind and name. Optional ones are left out."""
    for field in ("serviceAccountName", "serviceAccount"):
        if spec.get(field):
            yield (field,), "ServiceAccount", str(spec[field])
            break
    for path, kind, holder in _holders(spec):
        key = "secretName" if holder.get("secretName") else "name"
        if holder.get(key) and not holder.get("optional"):
            yield (*path, key), kind, str(holder[key])


def keys(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str, str, str]]:
    """The references of containers to required keys: path, kind, name and key."""
    for path, kind, holder in _holders(spec):
        name = str(holder.get("secretName") or holder.get("name") or "")
        if not name or holder.get("optional"):
            continue
        if "key" in holder:
            yield (*path, "key"), kind, name, str(holder["key"])
        for place, item in enumerate(items(holder.get("items"))):
            yield (*path, "items", place, "key"), kind, name, str(item.get("key"))


def _holders(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    """The references to a ConfigMap or Secret, as a whole or by key."""
    for index, volume in enumerate(items(spec.get("volumes"))):
        yield from _both(("volumes", index), volume, "configMap", "secret")
        for place, source in enumerate(items(section(volume.get("projected")).get("sources"))):
            yield from _both(
                ("volumes", index, "projected", "sources", place), source, "configMap", "secret"
            )
    for group in ("initContainers", "containers"):
        for index, container in enumerate(items(spec.get(group))):
            for place, source in enumerate(items(container.get("envFrom"))):
                yield from _both(
                    (group, index, "envFrom", place), source, "configMapRef", "secretRef"
                )
            for place, variable in enumerate(items(container.get("env"))):
                source = section(variable.get("valueFrom"))
                yield from _both(
                    (group, index, "env", place, "valueFrom"),
                    source,
                    "configMapKeyRef",
                    "secretKeyRef",
                )


def _both(
    way: Path, holder: Mapping[str, Any], config_map: str, secret: str
) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    for field, kind in ((config_map, "ConfigMap"), (secret, "Secret")):
        if named := section(holder.get(field)):
            yield (*way, field), kind, named


def claims(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """The PersistentVolumeClaims of a pod spec, and the path of each."""
    for index, volume in enumerate(items(spec.get("volumes"))):
        name = section(volume.get("persistentVolumeClaim")).get("claimName")
        if name:
            yield ("volumes", index, "persistentVolumeClaim", "claimName"), str(name)
