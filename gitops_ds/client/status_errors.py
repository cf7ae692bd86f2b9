"""The error for an API server's reply: a Status object becomes an exception with advice. Pure.

https://kubernetes.io/docs/reference/using-api/api-concepts/ and the reasons of meta/v1
StatusReason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from gitops_ds import errors

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
