"""ControllerRevisions: the exact bytes of their data, the equality of templates, their hash and
name.

`kubectl rollout undo` sends the data as a strategic merge patch, and upstream's controller compares
it byte for byte. So it is encoded as in Go: keys sorted by code point, no spaces, five characters
escaped.
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/controller-revision-v1/
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from typing import Any

from gitops_ds.core import names
from gitops_ds.core.daemonset import DaemonSet, Owner
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, Body
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import pods

_GO_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
_FNV_OFFSET, _FNV_PRIME, _32_BITS = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
_SAFE = "bcdfghjklmnpqrstvwxz2456789"


def canonical(value: Any) -> bytes:
    """JSON as Go's encoding/json writes maps. Required for a ControllerRevision, because the bytes
    of its data are stored as sent.
    """
    plain = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return plain.translate(_GO_ESCAPES).encode()


def data(template: Body) -> dict[str, Any]:
    """The `data` of a revision with this pod template: a patch that replaces any other one."""
    return {"spec": {"template": {"$patch": "replace", **template}}}


def template_of(body: Body) -> dict[str, Any] | None:
    """The pod template in a revision's `data`, without the directive; None if it is missing."""
    template: Any = body.get("data")
    for step in ("spec", "template"):
        template = template.get(step) if isinstance(template, Mapping) else None
    if not isinstance(template, Mapping):
        return None
    return {key: value for key, value in template.items() if key != "$patch"}


def same_template(one: Body, other: Body) -> bool:
    """Whether two pod templates are equivalent.

    Upstream compares bytes, so an API server that stops writing `creationTimestamp: null` (1.34)
    would roll every DaemonSet. Here null and absent are equal.
    """
    return _same(one, other)


def without_nulls(value: Any) -> Any:
    """The value without null fields, for a digest: null and absent are equal."""
    if isinstance(value, Mapping):
        return {name: without_nulls(field) for name, field in value.items() if field is not None}
    return [*map(without_nulls, value)] if isinstance(value, list) else value


def holds_more(template: Body, earlier: Body) -> bool:
    """Whether a template is an earlier one with additional fields only."""
    return _within(earlier, template)


def revision_of(body: Body) -> Revision | None:
    """The revision; None if its data has no pod template."""
    template = template_of(body)
    if template is None:
        return None
    metadata = body.get("metadata") or {}
    labels = metadata.get("labels") or {}
    return Revision(
        name=str(metadata.get("name") or ""),
        number=int(body.get("revision") or 0),
        hash=str(labels.get(names.REVISION_HASH) or ""),
        template=template,
        raw=body,
        uid=str(metadata.get("uid") or ""),
    )


def owner_of(revision: Revision) -> Owner | None:
    """Its controller, None for an orphan."""
    return pods.controller_of(revision.raw.get("metadata") or {})


def labels_of(revision: Revision) -> Mapping[str, str]:
    """Its labels."""
    return (revision.raw.get("metadata") or {}).get("labels") or {}


def annotations_of(revision: Revision) -> Mapping[str, Any]:
    """Its annotations."""
    return (revision.raw.get("metadata") or {}).get("annotations") or {}


def with_annotations(revision: Revision, changed: Mapping[str, str | None]) -> Revision:
    """The revision with these annotations, without those that are None."""
    merged = {**annotations_of(revision), **changed}
    annotations = {name: text for name, text in merged.items() if text is not None}
    metadata = {**(revision.raw.get("metadata") or {}), "annotations": annotations}
    return replace(revision, raw={**revision.raw, "metadata": metadata})


def hash_of(template: Body, collision_count: int | None) -> str:
    """The hash for names and labels: FNV-1a of the canonical data and the collision count, in
    letters that form no word.

    Only its form is upstream's, whose hash is that of a dump of Go structures, which changes
    between versions. The hash is opaque, and read from the revision's label.
    """
    content = canonical(data(template))
    if collision_count is not None:
        content += collision_count.to_bytes(4, "little") + bytes(4)
    return safe_text(str(fnv1a(content)))


def fnv1a(content: bytes) -> int:
    """The 32-bit FNV-1a hash."""
    value = _FNV_OFFSET
    for byte in content:
        value = ((value ^ byte) * _FNV_PRIME) & _32_BITS
    return value


def safe_text(text: str) -> str:
    """`SafeEncodeString` of k8s.io/apimachinery/pkg/util/rand: no vowels and no digits that look
    like one.
    """
    return "".join(_SAFE[ord(character) % len(_SAFE)] for character in text)


def owner_reference(daemonset: DaemonSet) -> dict[str, Any]:
    """The controller reference to this DaemonSet."""
    return {
        "apiVersion": DAEMONSET.api_version,
        "kind": DAEMONSET.kind,
        "name": daemonset.key.name,
        "uid": daemonset.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def name_for(daemonset: DaemonSet) -> str:
    """The name of a new revision of the DaemonSet's template."""
    return f"{daemonset.key.name}-{hash_of(daemonset.template, daemonset.collision_count)}"


def new(daemonset: DaemonSet, number: int, never_copied: Set[str] = frozenset()) -> dict[str, Any]:
    """A new revision of the DaemonSet's template, with the template's labels and the DaemonSet's
    annotations, without those that are never copied.
    """
    hash = hash_of(daemonset.template, daemonset.collision_count)
    labels = (daemonset.template.get("metadata") or {}).get("labels") or {}
    return {
        "apiVersion": CONTROLLER_REVISION.api_version,
        "kind": CONTROLLER_REVISION.kind,
        "metadata": {
            "name": f"{daemonset.key.name}-{hash}",
            "namespace": daemonset.key.namespace,
            "labels": {**labels, names.REVISION_HASH: hash},
            "annotations": {
                name: text
                for name, text in daemonset.annotations.items()
                if name not in never_copied
            },
            "ownerReferences": [owner_reference(daemonset)],
        },
        "revision": number,
        "data": data(daemonset.template),
    }


def _same(one: Any, other: Any) -> bool:
    if one == other:
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return all(_same(one.get(key), other.get(key)) for key in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return False


def _within(less: Any, more: Any) -> bool:
    if isinstance(less, Mapping) and isinstance(more, Mapping):
        return all(value is None or _within(value, more.get(key)) for key, value in less.items())
    if isinstance(less, list) and isinstance(more, list):
        return len(less) == len(more) and all(map(_within, less, more))
    return bool(less == more)
