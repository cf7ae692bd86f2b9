"""The names of objects: the kind that an API server serves, the key of one object, a path into its
body, the hash of its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, NewType

import msgspec
import orjson

# A commit's full hexadecimal id, 40 (SHA-1) or 64 (SHA-256) characters. For a template from an
# object of the cluster it is `configmap/NAMESPACE/NAME@RESOURCEVERSION`, and for all such templates
# together `templates@HASH`.
CommitId = NewType("CommitId", str)

# sha256 of an object's canonical JSON, in hexadecimal.
Digest = NewType("Digest", str)

# The path from the root of a document to a value: keys and list indices.
Path = tuple[str | int, ...]


class ListMember(str):
    """In a path, the member of a list by its key, in place of an index: `containers[agent]`."""

    __slots__ = ()


# An object as the API server writes it in JSON. Never changed in place once it is part of one of
# our values.
Body = Mapping[str, Any]


class Resource(msgspec.Struct, frozen=True, order=True):
    """A kind that an API server serves: its path, and whether its objects have a namespace."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """The text for `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version


class Key(msgspec.Struct, frozen=True, order=True):
    """The identity of an object in a cluster. The API version is not part of it: it is only a
    representation.
    """

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """As kubectl writes it, with the kind: `DaemonSet logging/fluent-bit`."""
        return (
            f"{self.kind} {self.namespace}/{self.name}"
            if self.namespace
            else f"{self.kind} {self.name}"
        )

    @property
    def is_daemonset(self) -> bool:
        """Whether the object is a DaemonSet of the API group apps."""
        return (self.group, self.kind) == ("apps", "DaemonSet")


def key_of(body: Body) -> Key:
    """The key of a body; the namespace is empty if it has none."""
    metadata = body.get("metadata") or {}
    return Key(
        group_of(body),
        str(body.get("kind", "")),
        str(metadata.get("namespace") or ""),
        str(metadata.get("name") or ""),
    )


def group_of(body: Body) -> str:
    """The API group in `apiVersion`; the core group is the empty text."""
    group, slash, _ = str(body.get("apiVersion", "")).partition("/")
    return group if slash else ""


def short(commit: str | None) -> str:
    """An abbreviated commit: its first 12 characters. A value that replaces a commit is
    unchanged.
    """
    text = commit or ""
    return text if "@" in text else text[:12]


def template_of(commit: str) -> str:
    """The cluster object that the template comes from, as `configmap/NAMESPACE/NAME`; empty for a
    commit of Git.
    """
    return commit.partition("@")[0] if "@" in commit else ""


def show_path(path: Path) -> str:
    """A readable path: `spec.template.spec.containers[0].image`; a key with a dot is quoted."""
    text = ""
    for step in path:
        if type(step) is str and step.isidentifier():  # most keys
            text += f".{step}" if text else step
        elif isinstance(step, int | ListMember):
            text += f"[{step}]"
        elif "." in step or "/" in step or "[" in step:
            text += f'["{step}"]'
        else:
            text += f".{step}" if text else step
    return text


MISSING: Final = object()


def value_at(value: Any, path: Path) -> Any:
    """The value at a path, which may be None; MISSING if the path does not exist."""
    for step in path:
        if isinstance(value, Mapping) and step in value:
            value = value[str(step)]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return MISSING
    return value


DAEMONSET = Resource("apps", "v1", "DaemonSet", "daemonsets", namespaced=True)
CONTROLLER_REVISION = Resource(
    "apps", "v1", "ControllerRevision", "controllerrevisions", namespaced=True
)
POD = Resource("", "v1", "Pod", "pods", namespaced=True)
NODE = Resource("", "v1", "Node", "nodes", namespaced=False)
CONFIG_MAP = Resource("", "v1", "ConfigMap", "configmaps", namespaced=True)
SECRET = Resource("", "v1", "Secret", "secrets", namespaced=True)
NAMESPACE = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
EVENT = Resource("", "v1", "Event", "events", namespaced=True)
LEASE = Resource("coordination.k8s.io", "v1", "Lease", "leases", namespaced=True)
ACCESS_REVIEW = Resource(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    namespaced=False,
)


def version_number(version: str) -> int:
    """A resourceVersion as a number; 0 for one that is not numeric, so that nothing waits for it.

    Versions are compared: https://kubernetes.io/docs/reference/using-api/api-concepts/
    """
    return int(version) if version.isascii() and version.isdigit() else 0


def digest_of(value: Any) -> Digest:
    """sha256 of the value's JSON with sorted keys, in hexadecimal."""
    return Digest(hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest())


def kept_text(text: bytes) -> bytes:
    """A copy of a text that orjson wrote, for a cache: its own has a buffer of 4 KiB or of several
    times the text for as long as it exists.
    """
    return bytes(memoryview(text))


def items_of(value: object) -> list[Mapping[str, Any]]:
    """The objects in a list of an object; none if it is missing or no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def annotations_of(body: Body) -> Mapping[str, Any]:
    """The annotations of an object."""
    return (body.get("metadata") or {}).get("annotations") or {}


def labels_of(body: Body) -> Mapping[str, Any]:
    """The labels of an object."""
    return (body.get("metadata") or {}).get("labels") or {}
