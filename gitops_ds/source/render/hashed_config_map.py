"""An agent's config/ files as an immutable ConfigMap whose name ends in the hash of its content.

So a change of a file changes the pod template and is rolled out, and after a rollback the old
content still exists.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.finding import Finding, Place
from gitops_ds.core.objects import Path, digest_of
from gitops_ds.core.sources.bundle import Pointer
from gitops_ds.source.render.parsed_objects import ParsedObject
from gitops_ds.source.render.traced_values import TracedScalar, TracedTree
from gitops_ds.source.rules import INVALID_NAME, NOT_RENDERED

# https://kubernetes.io/docs/concepts/configuration/configmap/: the length of a key, and 1 MiB for
# the whole content.
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_MOST_BYTES = 1024 * 1024


class Config(msgspec.Struct, frozen=True):
    """The content of an agent's config/ folder: the body of the ConfigMap, its name, and the file
    for findings.
    """

    agent: str
    name: str
    content: Mapping[str, Any]
    file: str

    def draft(self, namespace: str) -> ParsedObject:
        """The ConfigMap in a namespace (empty: the default one)."""
        metadata = {"name": self.name} | ({"namespace": namespace} if namespace else {})
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata | {"labels": {names.CONTENT_NAMED: self.agent}},
            "immutable": True,
            **self.content,
        }
        pointer = Pointer(self.file, 0, ())
        folder = str(PurePosixPath(self.file).parent)
        files: dict[Path, tuple[Pointer, ...]] = {
            (section, key): (Pointer(f"{folder}/{key}", 0, ()),)
            for section in ("data", "binaryData")
            for key in self.content.get(section, ())
        }
        return ParsedObject(body, pointer, files, self.agent)


def of_folder(
    agent: str, files: Mapping[PurePosixPath, bytes]
) -> tuple[Config | None, list[Finding]]:
    """The content of the ConfigMap; None for an empty folder. Files that a ConfigMap can't contain
    are findings.
    """
    data: dict[str, str] = {}
    binary: dict[str, str] = {}
    findings = []
    for path, content in sorted(files.items()):
        place = Place(str(path), 1, 1)
        if len(path.parts) > 4:
            findings.append(
                NOT_RENDERED.refusal("a ConfigMap has no folders; move the file to config/", place)
            )
        elif not _KEY.fullmatch(path.name):
            message = (
                f"a ConfigMap's key can't be {path.name!r}; use letters, digits, dot, dash and "
                "underscore"
            )
            findings.append(INVALID_NAME.refusal(message, place))
        else:
            try:
                data[path.name] = content.decode()
            except UnicodeDecodeError:
                binary[path.name] = base64.b64encode(content).decode()
    if sum(map(len, files.values())) > _MOST_BYTES:
        findings.append(
            NOT_RENDERED.refusal(
                "config/ exceeds 1 MiB, the limit of a ConfigMap", Place(str(min(files)), 1, 1)
            )
        )
    held = ({"data": data} if data else {}) | ({"binaryData": binary} if binary else {})
    if not held:
        return None, findings
    return Config(agent, f"{agent}-{digest_of(held)[:10]}", held, str(min(files))), findings


def point_to(daemonset: TracedTree, config: Config) -> tuple[TracedTree, bool]:
    """The traced DaemonSet in which every reference to the ConfigMap `<agent>` has the name with
    the hash, and whether it had a reference.
    """
    spec = daemonset
    for step in ("spec", "template", "spec"):
        spec = spec.get(step) if isinstance(spec, dict) else None
    holders = [holder for holder in _references(spec) if holder.get("name") == config.agent]
    if not holders:
        return daemonset, False
    ids = {id(holder) for holder in holders}
    at = Pointer(config.file, 0, ())

    def walk(tree: TracedTree) -> TracedTree:
        if isinstance(tree, dict):
            copy = {key: walk(value) for key, value in tree.items()}
            if id(tree) in ids:
                old = tree["name"]
                copy["name"] = TracedScalar(
                    config.name, (at, *(old.set_by if isinstance(old, TracedScalar) else ()))
                )
            return copy
        return [walk(value) for value in tree] if isinstance(tree, list) else tree

    return walk(daemonset), True


def _references(pod_spec: TracedTree) -> list[dict[str, Any]]:
    """The mappings in a pod's spec whose `name` is that of a ConfigMap."""
    holders = []
    for volume in _entries(pod_spec, "volumes"):
        holders.append(volume.get("configMap"))
        holders += [
            source.get("configMap") for source in _entries(volume.get("projected"), "sources")
        ]
    for group in ("containers", "initContainers", "ephemeralContainers"):
        for container in _entries(pod_spec, group):
            holders += [source.get("configMapRef") for source in _entries(container, "envFrom")]
            for variable in _entries(container, "env"):
                source = variable.get("valueFrom")
                holders.append(source.get("configMapKeyRef") if isinstance(source, dict) else None)
    return [holder for holder in holders if isinstance(holder, dict)]


def _entries(tree: TracedTree, key: str) -> Sequence[dict[str, Any]]:
    entries = tree.get(key) if isinstance(tree, dict) else None
    return (
        [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )
