"""From drafts to manifests: namespaces, the repository's labels and classes, and no object twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gitops_ds.kinds import digests, served
from gitops_ds.model import names
from gitops_ds.model.bundle import Manifest, Origin
from gitops_ds.model.finding import Finding, Severity, refusal
from gitops_ds.model.objects import Body, Key, group_of, key_of
from gitops_ds.render.drafts import Draft, PlaceOf


@dataclass(frozen=True, slots=True)
class Defaults:
    """What is added to objects that do not say it themselves."""

    namespace: str = ""
    labels: Mapping[str, str] | None = None
    classes: Mapping[str, str] | None = None  # by DaemonSet name


def finish(drafts: Iterable[Draft], defaults: Defaults, place: PlaceOf) -> tuple[dict[Key, Manifest], list[Finding]]:
    """The manifests by key, sorted, and what is wrong with some drafts; of two that name one object the first stays."""
    drafts = list(drafts)
    defined = _defined_here(drafts)
    manifests: dict[Key, Manifest] = {}
    findings: list[Finding] = []
    for draft in drafts:
        manifest, finding = _manifest(draft, defaults, defined, place)
        if finding is not None:
            findings.append(finding)
        if manifest is None:
            continue
        other = manifests.setdefault(manifest.key, manifest)
        if other is not manifest:
            first = place(other.origin.base)
            message = f"{manifest.key} is already written at {first}; keep one of the two"
            findings.append(refusal("DS801", message, place(draft.base), manifest.key))
        elif finding is None and manifest.key.kind == "Secret" and not manifest.key.group and _has_values(manifest.body):
            message = f"{manifest.key} has its values in Git, where everyone who can read the repository can read them"
            findings.append(Finding("DS514", Severity.WARNING, message, place(draft.base), object=manifest.key))
    return dict(sorted(manifests.items())), findings


def _manifest(
    draft: Draft, defaults: Defaults, defined: Mapping[tuple[str, str], bool], place: PlaceOf
) -> tuple[Manifest | None, Finding | None]:
    body: dict[str, Any] = draft.body
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        if isinstance(metadata, Mapping) and isinstance(metadata.get("generateName"), str):
            message = f"a {body['kind']} with generateName would be another object at every apply; give it a name"
        else:
            message = f"a {body['kind']} has no name; write metadata.name"
        return None, refusal("DS005", message, place(draft.base))
    key = key_of(body)
    namespaced = _namespaced(key, defined)
    finding = None
    if namespaced is False:
        # The API server drops a namespace that a cluster-wide object names.
        key = replace(key, namespace="")
    elif namespaced and not key.namespace and defaults.namespace:
        key = replace(key, namespace=defaults.namespace)
        metadata = _with_namespace(metadata, defaults.namespace)
    elif namespaced and not key.namespace:
        advice = "write metadata.namespace, give -n NAMESPACE, or set defaults.namespace in gitops-ds.yaml"
        finding = refusal("DS014", f"{key} has no namespace; {advice}", place(draft.base), key)
    metadata = _with_labels(metadata, defaults.labels or {})
    if key.kind == "DaemonSet" and key.group == "apps":
        metadata = _with_class(metadata, (defaults.classes or {}).get(draft.agent or key.name, ""))
    if metadata is not body.get("metadata"):
        body = {name: metadata if name == "metadata" else value for name, value in body.items()}
    agent = draft.agent or (key.name if (key.group, key.kind) == ("apps", "DaemonSet") else "")
    manifest = Manifest(
        key=key,
        body=body,
        digest=digests.digest(body),
        origin=Origin(draft.base, draft.set_by),
        agent=agent,
        variant=draft.variant,
        depends_on=draft.depends_on,
        scope_unknown=namespaced is None and not key.namespace,
    )
    return manifest, finding


def _defined_here(drafts: Iterable[Draft]) -> dict[tuple[str, str], bool]:
    """Group and kind of the CustomResourceDefinitions among the drafts: whether their objects have a namespace."""
    found = {}
    for draft in drafts:
        if draft.body["kind"] == "CustomResourceDefinition" and group_of(draft.body) == "apiextensions.k8s.io":
            spec = draft.body.get("spec")
            kinds = spec.get("names") if isinstance(spec, Mapping) else None
            if isinstance(spec, Mapping) and isinstance(kinds, Mapping):
                found[str(spec.get("group")), str(kinds.get("kind"))] = spec.get("scope") == "Namespaced"
    return found


def _namespaced(key: Key, defined: Mapping[tuple[str, str], bool]) -> bool | None:
    """Whether objects of the kind have a namespace; None where only the cluster knows."""
    known = served.RESOURCES.get((key.group, key.kind))
    return known.namespaced if known else defined.get((key.group, key.kind))


def _with_namespace(metadata: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    return {"name": metadata["name"], "namespace": namespace} | {
        k: v for k, v in metadata.items() if k not in ("name", "namespace")
    }


def _with_labels(metadata: Mapping[str, Any], labels: Mapping[str, str]) -> Mapping[str, Any]:
    own = metadata.get("labels") or {}
    if not labels or not isinstance(own, Mapping) or labels.keys() <= own.keys():
        return metadata
    return {**metadata, "labels": {**labels, **own}}


def _with_class(metadata: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    own = metadata.get("annotations") or {}
    if not name or not isinstance(own, Mapping) or names.CLASS in own:
        return metadata
    return {**metadata, "annotations": {**own, names.CLASS: name}}


def _has_values(body: Body) -> bool:
    return bool(body.get("data") or body.get("stringData"))
