"""Requests and replies of an API server as values: paths, queries, bodies, watch events, discovery,
and the error for a Status, an exception with advice. Pure.

https://kubernetes.io/docs/reference/using-api/api-concepts/ and the reasons of meta/v1
StatusReason.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from gitops_ds.core import errors
from gitops_ds.core.cluster import EventType, Selection, WatchEvent
from gitops_ds.core.objects import ACCESS_REVIEW, CONTROLLER_REVISION, Body, Resource
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.kube.client import received_bodies

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


def access_review(verb: str, resource: Resource, namespace: str) -> Body:
    """The question whether that is permitted in the namespace (empty: in all); a plural such as
    `pods/status` names a subresource, as in a role.
    """
    plural, _, subresource = resource.plural.partition("/")
    attributes = {
        "verb": verb,
        "group": resource.group,
        "resource": plural,
        "subresource": subresource,
        "namespace": namespace,
    }
    return {
        "apiVersion": ACCESS_REVIEW.api_version,
        "kind": ACCESS_REVIEW.kind,
        "metadata": {},
        "spec": {"resourceAttributes": attributes},
    }


def query_of(which: Selection) -> dict[str, str]:
    """The selectors as query parameters."""
    query = {"labelSelector": which.labels, "fieldSelector": which.fields}
    return {key: value for key, value in query.items() if value}


def decoder(
    brief_ones: Mapping[Resource, received_bodies.Decode], resource: Resource, which: Selection
) -> received_bodies.Decode:
    """A JSON decoder; input that the brief decoder rejects (an ERROR, a Status) is decoded as a
    whole.
    """
    cut = brief_ones.get(resource)
    return orjson.loads if cut is None or not which.brief else or_whole(cut)


def or_whole(cut: received_bodies.Decode) -> received_bodies.Decode:
    """A JSON decoder that decodes input that `cut` rejects as a whole."""

    def decode(text: bytes | memoryview) -> Any:
        try:
            return cut(text)
        except msgspec.MsgspecError:
            return orjson.loads(text)

    return decode


list_page = or_whole(received_bodies.PAGE)


def is_list(page: Mapping[str, Any]) -> bool:
    """Whether a reply is a list with a resourceVersion."""
    metadata, items = page.get("metadata"), page.get("items") or []
    return isinstance(metadata, dict) and "resourceVersion" in metadata and isinstance(items, list)


def watch_event(event: Mapping[str, Any], who: str) -> WatchEvent:
    """The event of a watch. Raises the error of an ERROR event."""
    body = event["object"]
    if event["type"] == "ERROR":
        raise error_for(int(body.get("code") or 500), orjson.dumps(body), None, who)
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


_BY_STATUS: Mapping[int, type[errors.ClusterError]] = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    410: errors.Expired,
    413: errors.BadRequest,
    415: errors.BadRequest,
    422: errors.Invalid,
    429: errors.TooManyRequests,
}

# The messages of a server-side apply for a field outside the schema, or for a value that can't be
# decoded: the status is 500, though the server is healthy.
_MALFORMED = ("failed to create typed patch object", "failed to convert new object")


def error_for(
    status: int, body: bytes, retry_after: str | None, who: str, impersonated: str = ""
) -> errors.ClusterError:
    """The error for a reply with a status of 400 or more. `who` names the credentials,
    `impersonated` the impersonated user of the request.
    """
    status_body = status_object(body)
    reason = str(status_body.get("reason") or "")
    message = str(
        status_body.get("message")
        or body[:200].decode("utf-8", "replace").strip()
        or f"HTTP {status}"
    )
    details = status_body.get("details") or {}
    causes = tuple({k: str(v) for k, v in cause.items()} for cause in details.get("causes") or ())
    if status == 500 and message.startswith(_MALFORMED):
        status = 422
    kind = (
        errors.AlreadyExists
        if reason == "AlreadyExists"
        else errors.Conflict
        if status == 409
        else _BY_STATUS.get(status)
    )
    if kind is None:
        kind = errors.ServerFault if status >= 500 else errors.ClusterError
    error = kind(_sentence(status, message, who, impersonated), status, reason, causes)
    error.server_message = message
    if isinstance(error, errors.TooManyRequests | errors.ServerFault):
        seconds = retry_after or details.get("retryAfterSeconds")
        error.retry_after = _seconds(seconds, default=1.0 if status == 429 else 0.0)
    return error


def status_object(body: bytes) -> Mapping[str, Any]:
    """The Status in a reply, or an empty mapping for anything else (a proxy's HTML page)."""
    try:
        status_body = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return (
        status_body if isinstance(status_body, dict) and status_body.get("kind") == "Status" else {}
    )


# The messages of an authorizer; all other 403s come from admission, which permissions do not
# affect.
# https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go
_RBAC = re.compile(r'(?:User|user) "[^"]*" cannot |is attempting to grant RBAC permissions')


def _sentence(status: int, message: str, who: str, impersonated: str) -> str:
    match status:
        case 401:
            return (
                f"the API server does not accept the credentials of {who} (401 {message}): log in "
                "again, or name another --context"
            )
        case 403 if not _RBAC.search(message):
            return f"{message} (403): an admission plugin or policy of the cluster refuses it"
        case 403 if impersonated and f'"{impersonated}"' in message:
            return (
                f"{message} (403): grant that permission to {impersonated}, or set another account"
            )
        case 403:
            return f"{message} (403): grant that permission to the account of {who}, or use another"
        case 429:
            return f"the API server throttles requests (429): {message}"
        case _ if status >= 500:
            return f"the API server failed ({status}): {message}"
        case _:
            return message


def _seconds(text: Any, default: float) -> float:
    try:
        return max(0.0, float(text))
    except (TypeError, ValueError):
        return default
