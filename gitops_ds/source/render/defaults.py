"""Parsed objects to manifests: adds namespaces, the repository's labels and classes, and finds
duplicate objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.finding import Finding
from gitops_ds.core.objects import Body, Key, Path, digest_of, group_of, key_of
from gitops_ds.core.sources.bundle import Manifest, Origin, Pointer
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import builtin_resources
from gitops_ds.source.render.parsed_objects import ParsedObject, PlaceOf
from gitops_ds.source.rules import MISSING_FIELD, NOT_RENDERED, PLAIN_SECRET

# The order of keys, faster than their comparison in pairs.
_PARTS = attrgetter("group", "kind", "namespace", "name")


class Default(msgspec.Struct, frozen=True):
    """A default for objects that do not set the value, and its source (None: the command line)."""

    value: str
    at: Pointer | None = None


class Defaults(msgspec.Struct, frozen=True):
    """The values that are added to objects: a namespace, labels by key, and the class of a
    DaemonSet by its agent's name.
    """

    namespace: Default
    labels: Mapping[str, Default] = msgspec.field(default_factory=dict)
    classes: Mapping[str, Default] = msgspec.field(default_factory=dict)


def finish(
    drafts: Iterable[ParsedObject], defaults: Defaults, place: PlaceOf
) -> tuple[dict[Key, Manifest], list[Finding]]:
    """The manifests, sorted by key, and the findings; the first of two with the same key is
    used.
    """
    drafts = list(drafts)
    defined = _defined_here(drafts)
    manifests: dict[Key, Manifest] = {}
    findings: list[Finding] = []
    for draft in drafts:
        manifest = _manifest(draft, defaults, defined, place)
        if isinstance(manifest, Finding):
            findings.append(manifest)
            continue
        other = manifests.setdefault(manifest.key, manifest)
        if other is not manifest:
            first = place(other.origin.base)
            message = f"{manifest.key} is already written at {first}; keep one of the two"
            findings.append(NOT_RENDERED.refusal(message, place(draft.base), manifest.key))
        elif (
            manifest.key.kind == "Secret" and not manifest.key.group and _has_values(manifest.body)
        ):
            message = (
                f"{manifest.key} has its values in Git, where everyone who can read the "
                "repository can read them"
            )
            findings.append(PLAIN_SECRET.warning(message, place(draft.base), manifest.key))
    return dict(sorted(manifests.items(), key=lambda one: _PARTS(one[0]))), findings


def _manifest(
    draft: ParsedObject, defaults: Defaults, defined: Mapping[tuple[str, str], bool], place: PlaceOf
) -> Manifest | Finding:
    body: dict[str, Any] = draft.body
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        if isinstance(metadata, Mapping) and isinstance(metadata.get("generateName"), str):
            message = (
                f"a {body['kind']} with generateName would be a new object at every apply; set "
                "metadata.name"
            )
        else:
            message = f"a {body['kind']} has no name; set metadata.name"
        return MISSING_FIELD.refusal(message, place(draft.base))
    key = key_of(body)
    namespaced = _namespaced(key, defined)
    added: dict[Path, Default] = {}
    if namespaced is False:
        # The API server drops the namespace of a cluster-scoped object.
        key = replace(key, namespace="")
    elif namespaced and not key.namespace:
        key = replace(key, namespace=defaults.namespace.value)
        added["metadata", "namespace"] = defaults.namespace
    added |= {("metadata", "labels", name): label for name, label in defaults.labels.items()}
    agent = draft.agent or (key.name if key.is_daemonset else "")
    if key.is_daemonset and agent in defaults.classes:
        added["metadata", "annotations", names.CLASS] = defaults.classes[agent]
    set_by = dict(draft.set_by)
    for path, default in added.items():
        if (changed := _with(body, path, default.value)) is not body:
            body = changed
            set_by |= {path: (default.at,)} if default.at else {}
    return Manifest(
        key=key,
        body=body,
        digest=draft.digest if draft.digest and body is draft.body else digest_of(body),
        origin=Origin(draft.base, set_by),
        agent=agent,
        variant=draft.variant,
        depends_on=draft.depends_on,
        scope_unknown=namespaced is None and not key.namespace,
    )


def _defined_here(drafts: Iterable[ParsedObject]) -> dict[tuple[str, str], bool]:
    """Whether objects have a namespace, by group and kind of the CustomResourceDefinitions among
    the drafts.
    """
    defined_kinds = {}
    for draft in drafts:
        if (
            draft.body["kind"] == "CustomResourceDefinition"
            and group_of(draft.body) == "apiextensions.k8s.io"
        ):
            spec = draft.body.get("spec")
            kinds = spec.get("names") if isinstance(spec, Mapping) else None
            if isinstance(spec, Mapping) and isinstance(kinds, Mapping):
                defined_kinds[str(spec.get("group")), str(kinds.get("kind"))] = (
                    spec.get("scope") == "Namespaced"
                )
    return defined_kinds


def _namespaced(key: Key, defined: Mapping[tuple[str, str], bool]) -> bool | None:
    """Whether objects of the kind have a namespace; None if unknown without the cluster."""
    resource = builtin_resources.RESOURCES.get((key.group, key.kind))
    return resource.namespaced if resource else defined.get((key.group, key.kind))


def _with(body: dict[str, Any], path: Path, value: str) -> dict[str, Any]:
    """A copy of the body with the value at the path; the body itself if it has a value there."""
    step = str(path[0])
    old = body.get(step)
    if len(path) == 1:
        return {**body, step: value} if old in (None, "") else body
    inner = old or {}
    changed = _with(inner, path[1:], value) if isinstance(inner, dict) else inner
    return body if changed is inner else {**body, step: changed}


def _has_values(body: Body) -> bool:
    return bool(body.get("data") or body.get("stringData"))
