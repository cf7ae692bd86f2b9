"""The error messages of the API server. tests/contract compares them with the real ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.objects import Resource


class FieldError(msgspec.Struct, frozen=True):
    """A refused field of an object. `reason` is that of the API: FieldValueInvalid,
    FieldValueRequired, ...
    """

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def required(field: str, detail: str = "") -> FieldError:
    """A required field is missing."""
    return FieldError(
        field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value"
    )


def invalid_value(field: str, value: Any, detail: str) -> FieldError:
    """The field's value is invalid."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {text(value)}: {detail}")


def forbidden_value(field: str, detail: str) -> FieldError:
    """The field may not be set, or not changed."""
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(field: str, value: Any) -> FieldError:
    """The value is a duplicate."""
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {text(value)}")


def unsupported(field: str, value: Any, supported: Sequence[str]) -> FieldError:
    """The value is not one of the allowed ones."""
    names, shown = ", ".join(text(s) for s in supported), json.dumps(value, separators=(",", ":"))
    return FieldError(
        field, "FieldValueNotSupported", f"Unsupported value: {shown}: supported values: {names}"
    )


def text(value: Any) -> str:
    """A value in the format of the API server's messages: JSON, keys sorted, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def plural(resource: Resource) -> str:
    """`daemonsets.apps`, or `pods` in the core group."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def kind(resource: Resource) -> str:
    """`DaemonSet.apps`, or `Pod` in the core group."""
    return f"{resource.kind}.{resource.group}" if resource.group else resource.kind


def not_found(resource: Resource, name: str) -> errors.NotFound:
    """No such object."""
    return errors.NotFound(f'{plural(resource)} "{name}" not found', 404, "NotFound")


def not_served() -> errors.NotFound:
    """No such kind."""
    return errors.NotFound("the server could not find the requested resource", 404, "NotFound")


def already_exists(resource: Resource, name: str) -> errors.AlreadyExists:
    """The name is in use."""
    return errors.AlreadyExists(f'{plural(resource)} "{name}" already exists', 409, "AlreadyExists")


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(resource: Resource, name: str, why: str = MODIFIED) -> errors.Conflict:
    """The object has another version, or is another object."""
    return errors.Conflict(
        f'Operation cannot be fulfilled on {plural(resource)} "{name}": {why}', 409, "Conflict"
    )


def other_uid(resource: Resource, name: str, expected: str, actual: str) -> errors.Conflict:
    """The precondition of a delete failed."""
    why = (
        f"the UID in the precondition ({expected}) does not match the UID in record ({actual}). "
        "The object might have been deleted and then recreated"
    )
    return errors.Conflict(
        f'Operation cannot be fulfilled on {kind(resource)} "{name}": {why}', 409, "Conflict"
    )


def replaced_uid(resource: Resource, name: str, new: str, actual: str) -> errors.Conflict:
    """A replacement of an object with another UID; in a patch it is an immutable field."""
    return conflict(
        resource,
        name,
        f"Precondition failed: UID in precondition: {new}, UID in object meta: {actual}",
    )


def invalid(resource: Resource, name: str, causes: Sequence[FieldError]) -> errors.Invalid:
    """The object is refused for these fields."""
    what = str(causes[0]) if len(causes) == 1 else f"[{', '.join(str(c) for c in causes)}]"
    details = tuple({"reason": c.reason, "message": c.message, "field": c.field} for c in causes)
    return errors.Invalid(f'{kind(resource)} "{name}" is invalid: {what}', 422, "Invalid", details)


def bad_request(message: str) -> errors.BadRequest:
    """The request is invalid."""
    return errors.BadRequest(message, 400, "BadRequest")


def forbidden(
    resource: Resource, name: str, why: str, causes: Sequence[FieldError] = ()
) -> errors.Forbidden:
    """Admission refuses the request."""
    details = tuple({"reason": c.reason, "message": c.message, "field": c.field} for c in causes)
    return errors.Forbidden(
        f'{plural(resource)} "{name}" is forbidden: {why}', 403, "Forbidden", details
    )


def expired(version: int, oldest: int) -> errors.Expired:
    """The watch starts before the oldest stored change."""
    return errors.Expired(f"too old resource version: {version} ({oldest})", 410, "Expired")


def unfit(message: str) -> errors.Invalid:
    """The body of a server-side apply does not match its kind. (The API server responds with 500,
    although the body is at fault.)
    """
    return errors.Invalid(message, 422)


PATCH_OPTIONS = Resource("meta.k8s.io", "v1", "PatchOptions", "", namespaced=False)


def not_allowed() -> errors.ClusterError:
    """The URL does not support the method: a namespaced object without its namespace, an object
    without its name.
    """
    return errors.ClusterError(
        "the server does not allow this method on the requested resource", 405, "MethodNotAllowed"
    )


def unprocessable() -> errors.Invalid:
    """A JSON patch that can't be applied."""
    return errors.Invalid(
        "the server rejected our request due to an error in our request", 422, "Invalid"
    )


def unsupported_type() -> errors.BadRequest:
    """A strategic merge patch for a custom kind."""
    says = "the body of the request was in an unknown format - accepted media types include: "
    types = (
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )
    return errors.BadRequest(says + types, 415, "UnsupportedMediaType")


def unsupported_here(what: str) -> errors.Invalid:
    """The simulated cluster does not support the request."""
    return errors.Invalid(f"the simulated cluster can't do this: {what}", 501, "NotImplemented")
