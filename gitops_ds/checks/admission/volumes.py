"""Validation of volume sources by the API server.

Source: validateVolumeSource in pkg/apis/core/validation/validation.go of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.checks.admission import containers, environment, object_names
from gitops_ds.checks.engine.rule import Spec, Violation, items, pod_specs, section
from gitops_ds.core.objects import Body, Path

# The required fields of each source for which its schema accepts an empty string.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "hostPath": ("path",),
    "configMap": ("name",),
    "secret": ("secretName",),
    "persistentVolumeClaim": ("claimName",),
    "nfs": ("server", "path"),
    "csi": ("driver",),
    "image": ("reference",),
    "ephemeral": ("volumeClaimTemplate",),
    "gitRepo": ("repository",),
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "iscsi": ("targetPortal", "iqn"),
    "glusterfs": ("endpoints", "path"),
    "rbd": ("monitors", "image"),
    "cephfs": ("monitors",),
    "cinder": ("volumeID",),
    "flexVolume": ("driver",),
    "azureFile": ("secretName", "shareName"),
    "azureDisk": ("diskName", "diskURI"),
    "vsphereVolume": ("volumePath",),
    "photonPersistentDisk": ("pdID",),
    "portworxVolume": ("volumeID",),
    "quobyte": ("registry", "volume"),
    "scaleIO": ("gateway", "system", "volumeName"),
    "storageos": ("volumeName",),
}
_WITH_FILES: Final = ("configMap", "secret", "downwardAPI", "projected")
_FILE_MODE: Final = 0o777


def _sources(body: Body) -> Iterator[tuple[Path, str, Spec]]:
    """Every volume source of an object's pods, with its path and its name."""
    for path, spec in pod_specs(body):
        for index, volume in enumerate(items(spec.get("volumes"))):
            for name, source in volume.items():
                if name != "name" and source is not None:
                    yield (*path, "volumes", index, name), name, source


def missing(body: Body) -> Iterator[Violation]:
    """Required fields of a volume."""
    for way, name, source in _sources(body):
        for field in _NEEDED.get(name, ()):
            if not source.get(field):
                yield Violation((*way, field), f"a volume of type {name} requires {field}")
        if name in _WITH_FILES:
            yield from _missing_of_files(way, name, source)
        elif (
            name == "csi"
            and source.get("nodePublishSecretRef") is not None
            and not source["nodePublishSecretRef"].get("name")
        ):
            yield Violation((*way, "nodePublishSecretRef"), "nodePublishSecretRef requires a name")
        elif name == "ephemeral":
            yield from _missing_of_claim(way, section(source.get("volumeClaimTemplate")))


def _missing_of_files(way: Path, name: str, source: Spec) -> Iterator[Violation]:
    for place, kind, part in _parts(way, name, source):
        if place != way and kind in ("configMap", "secret") and not part.get("name"):
            yield Violation((*place, "name"), f"{kind} requires a name")
        for index, item in enumerate(items(part.get("items"))):
            for field in ("path",) if kind == "downwardAPI" else ("key", "path"):
                if not item.get(field):
                    yield Violation((*place, "items", index, field), f"a file requires {field}")
            if kind == "downwardAPI":
                yield from _missing_of_field((*place, "items", index), item)
        if kind == "serviceAccountToken" and not part.get("path"):
            yield Violation((*place, "path"), "the token requires a path")
        if kind == "clusterTrustBundle" and not part.get("path"):
            yield Violation((*place, "path"), "the bundle requires a path")


def _missing_of_field(place: Path, item: Spec) -> Iterator[Violation]:
    if item.get("fieldRef") is None and item.get("resourceFieldRef") is None:
        yield Violation(place, "a file requires fieldRef or resourceFieldRef")
    elif item.get("fieldRef") is not None and not item["fieldRef"].get("fieldPath"):
        yield Violation((*place, "fieldRef"), "fieldRef requires a fieldPath")
    elif item.get("fieldRef") is None and not item["resourceFieldRef"].get("containerName"):
        yield Violation(
            (*place, "resourceFieldRef"), "resourceFieldRef of a volume requires a containerName"
        )


def _missing_of_claim(way: Path, template: Spec) -> Iterator[Violation]:
    spec = section(template.get("spec"))
    place = (*way, "volumeClaimTemplate", "spec")
    if not spec.get("accessModes"):
        yield Violation(
            (*place, "accessModes"), "the claim requires accessModes, such as [ReadWriteOnce]"
        )
    if section(section(spec.get("resources")).get("requests")).get("storage") is None:
        yield Violation(
            (*place, "resources"),
            "the claim requires a size: resources: {requests: {storage: 1Gi}}",
        )
    for field in ("dataSource", "dataSourceRef"):
        if section(spec.get(field)).get("name") == "":
            yield Violation((*place, field, "name"), f"{field} requires a name")


def _parts(way: Path, name: str, source: Spec) -> Iterator[tuple[Path, str, Spec]]:
    """The parts of a source that contain files: the source itself, or its projections."""
    if name != "projected":
        yield way, name, source
        return
    for index, projection in enumerate(items(source.get("sources"))):
        for kind, part in projection.items():
            if part is not None:
                yield (*way, "sources", index, kind), kind, part


def values(body: Body) -> Iterator[Violation]:
    """Values of a volume source that are not allowed."""
    for way, name, source in _sources(body):
        if name in _WITH_FILES:
            yield from _files(way, name, source)
        elif name == "hostPath":
            if ".." in str(source.get("path")).split("/"):
                yield Violation((*way, "path"), f'"{source["path"]}" must not contain ".."')
        elif name == "nfs":
            if source.get("path") and not str(source["path"]).startswith("/"):
                yield Violation((*way, "path"), f'"{source["path"]}" must be absolute')
        elif name == "csi":
            yield from _driver(way, str(source.get("driver") or ""))
        elif name == "ephemeral":
            yield from _claim(way, section(source.get("volumeClaimTemplate")))


def _mode(way: Path, part: Spec, field: str) -> Iterator[Violation]:
    mode = part.get(field)
    if mode is not None and not 0 <= mode <= _FILE_MODE:
        yield Violation((*way, field), f"{field} is {mode}: must be between 0 and 0777 (511)")


def _driver(way: Path, driver: str) -> Iterator[Violation]:
    if driver and (len(driver) > 63 or not object_names.subdomain(driver.lower())):
        yield Violation((*way, "driver"), f'"{driver}" is not a valid CSI driver name')


def _claim(way: Path, template: Spec) -> Iterator[Violation]:
    for field, value in section(template.get("metadata")).items():
        if field not in ("labels", "annotations") and value is not None:
            yield Violation(
                (*way, "volumeClaimTemplate", "metadata", field),
                f"the name of the claim derives from the pod: {field} must not be set",
            )
    for field in ("storageClassName", "volumeAttributesClassName"):
        name = section(template.get("spec")).get(field)
        if name and not object_names.subdomain(name):
            yield Violation(
                (*way, "volumeClaimTemplate", "spec", field), f'"{name}" is not a valid object name'
            )
    for field in ("dataSource", "dataSourceRef"):
        source = section(section(template.get("spec")).get(field))
        if source and not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
            place = (*way, "volumeClaimTemplate", "spec", field, "kind")
            yield Violation(
                place,
                f"without an apiGroup kind must be PersistentVolumeClaim, not "
                f'"{source.get("kind")}"',
            )


def _files(way: Path, name: str, source: Spec) -> Iterator[Violation]:
    if source.get("defaultMode") is not None:
        yield from _mode(way, source, "defaultMode")
    seen = set[str]()
    for index, projection in enumerate(items(source.get("sources"))):
        kinds = [kind for kind, part in projection.items() if part is not None]
        if len(kinds) > 1:
            yield Violation(
                (*way, "sources", index),
                f"the source has {' and '.join(kinds)}: only one is allowed",
            )
    for place, kind, part in _parts(way, name, source):
        for index, item in enumerate(items(part.get("items"))):
            where = (*place, "items", index)
            yield from _file(where, kind, item)
            if place != way:
                yield from _once(seen, (*where, "path"), item.get("path"))
        if kind == "serviceAccountToken":
            yield from _token(place, part)
        elif kind == "clusterTrustBundle":
            yield from _bundle(place, part)
            yield from _once(seen, (*place, "path"), part.get("path"))


def _once(seen: set[str], where: Path, path: Any) -> Iterator[Violation]:
    if path and path in seen:
        yield Violation(where, f'"{path}" is a duplicate: the path of a file must be unique')
    seen.add(str(path))


def _file(where: Path, kind: str, item: Spec) -> Iterator[Violation]:
    yield from _local(where, str(item.get("path") or ""))
    if item.get("mode") is not None:
        yield from _mode(where, item, "mode")
    if kind != "downwardAPI":
        return
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None and resource is not None:
        yield Violation(where, "a file must have either fieldRef or resourceFieldRef, not both")
    elif field is not None:
        yield from environment.field_of_pod(
            (*where, "fieldRef"), field, environment.FIELDS_OF_FILES
        )
    elif resource is not None:
        yield from environment.resource_of_container((*where, "resourceFieldRef"), resource)


def _local(where: Path, path: str) -> Iterator[Violation]:
    problem = containers.wrong_descent(path)
    if problem or path.startswith(".."):
        yield Violation((*where, "path"), problem or f'"{path}" must not start with ".."')


def _token(place: Path, part: Spec) -> Iterator[Violation]:
    yield from _local(place, str(part.get("path") or ""))
    seconds = part.get("expirationSeconds")
    if seconds is not None and not 600 <= seconds <= 1 << 32:
        yield Violation(
            (*place, "expirationSeconds"),
            f"expirationSeconds must be at least 600 s, not {seconds} s",
        )


def _bundle(place: Path, part: Spec) -> Iterator[Violation]:
    yield from _local(place, str(part.get("path") or ""))
    named, signed = part.get("name") is not None, part.get("signerName") is not None
    if named == signed:
        yield Violation(place, "a clusterTrustBundle must have either name or signerName")
    if named and part.get("labelSelector") is not None:
        yield Violation((*place, "labelSelector"), "labelSelector requires signerName, not name")
