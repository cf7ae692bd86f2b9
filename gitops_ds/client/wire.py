"""Requests and replies of an API server as values: paths, queries, bodies, watch events, discovery.
Pure.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from gitops_ds import errors
from gitops_ds.apimachinery import field_projection, revisions
from gitops_ds.client import status_errors
from gitops_ds.model.cluster import EventType, Selection, WatchEvent
from gitops_ds.model.objects import CONTROLLER_REVISION, Body, Resource

_EVENT_TYPES = {str(type): type for type in EventType}


def path_of(resource: Resource, namespace: str, name: str = "") -> str:
    """The path of a resource in a namespace, or of one object."""
    path = (
        f"/apis/{resource.group}/{resource.version}"
        if resource.group
        else f"/api/{resource.version}"
    )
    if resource.namespaced and namespace:
        path += f"/namespaces/{_segment(namespace)}"
    return f"{path}/{resource.plural}" + (f"/{_segment(name)}" if name else "")


def _segment(name: str) -> str:
    """A name as a segment of a path. Raises NotPermitted for one that would change the path.
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
    """
    if name in (".", "..") or "/" in name or "%" in name:
        raise errors.NotPermitted(
            f"{name!r} is not a valid name: it must not be '.' or '..', or contain '/' or '%'"
        )
    return urllib.parse.quote(name, safe=":")


def as_stored(resource: Resource, body: Body) -> Body:
    """The body, with a ControllerRevision's data in the exact bytes that upstream's controller
    compares.
    """
    if resource == CONTROLLER_REVISION and "data" in body:
        return {**body, "data": orjson.Fragment(revisions.canonical(body["data"]))}
    return body


def namespace_of(body: Body) -> str:
    """The namespace of a body, empty for a cluster-scoped object."""
    return str(body["metadata"].get("namespace") or "")


def query_of(which: Selection) -> dict[str, str]:
    """The selectors as query parameters."""
    query = {"labelSelector": which.labels, "fieldSelector": which.fields}
    return {key: value for key, value in query.items() if value}


def decoder(
    brief_ones: Mapping[Resource, field_projection.Decode], resource: Resource, which: Selection
) -> field_projection.Decode:
    """A JSON decoder; input that the brief decoder rejects (an ERROR, a Status) is decoded as a
    whole.
    """
    cut = brief_ones.get(resource)
    return orjson.loads if cut is None or not which.brief else or_whole(cut)


def or_whole(cut: field_projection.Decode) -> field_projection.Decode:
    """A JSON decoder that decodes input that `cut` rejects as a whole."""

    def decode(text: bytes | memoryview) -> Any:
        try:
            return cut(text)
        except msgspec.MsgspecError:
            return orjson.loads(text)

    return decode


list_page = or_whole(field_projection.PAGE)


def is_list(page: Mapping[str, Any]) -> bool:
    """Whether a reply is a list with a resourceVersion."""
    metadata, items = page.get("metadata"), page.get("items") or []
    return isinstance(metadata, dict) and "resourceVersion" in metadata and isinstance(items, list)


def watch_event(event: Mapping[str, Any], who: str) -> WatchEvent:
    """The event of a watch. Raises the error of an ERROR event."""
    body = event["object"]
    if event["type"] == "ERROR":
        raise status_errors.error_for(int(body.get("code") or 500), orjson.dumps(body), None, who)
    return WatchEvent(_EVENT_TYPES[event["type"]], body, str(body["metadata"]["resourceVersion"]))


def warning_text(header: str) -> str:
    """The text of a `Warning: 299 - "text"` header (RFC 7234)."""
    _, quote, rest = header.partition('"')
    return rest.rstrip('"').replace('\\"', '"') if quote else header


def discovered(reply: Mapping[str, Any]) -> dict[tuple[str, str], Resource]:
    """The resources of an aggregated discovery reply, by group and kind."""
    resources: dict[tuple[str, str], Resource] = {}
    for group in reply.get("items") or ():
        name = group["metadata"].get("name") or ""
        for version in reversed(group.get("versions") or ()):
            for item in version.get("resources") or ():
                kind = (item.get("responseKind") or {}).get("kind") or ""
                scope = item.get("scope") == "Namespaced"
                resources[name, kind] = Resource(
                    name, version["version"], kind, item["resource"], namespaced=scope
                )
    return resources
