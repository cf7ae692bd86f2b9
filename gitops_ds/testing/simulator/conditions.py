"""The conditions of a status."""

from __future__ import annotations

from typing import Any

from gitops_ds.core.objects import Body
from gitops_ds.kube.apimachinery import timestamps


def put(
    body: Body, type: str, value: str, now: float, why: tuple[str, str] = ("", "")
) -> dict[str, Any]:
    """The object's status with that condition; its time changes only with its value. `why` is
    reason and message.
    """
    status = body.get("status") or {}
    return {**status, "conditions": among(status.get("conditions") or (), type, value, now, why)}


def among(
    conditions: Any, type: str, value: str, now: float, why: tuple[str, str] = ("", "")
) -> list[dict[str, Any]]:
    """The conditions with that one set, at its place."""
    before = next((c for c in conditions if c["type"] == type), None)
    since = (
        before["lastTransitionTime"]
        if before and before["status"] == value
        else timestamps.text(now)
    )
    made = {"type": type, "status": value, "lastTransitionTime": since}
    made |= {name: text for name, text in zip(("reason", "message"), why, strict=True) if text}
    if before is None:
        return [*conditions, made]
    return [made if c is before else c for c in conditions]


def true(body: Body, type: str) -> bool:
    """Whether the condition is true."""
    return any(
        c["type"] == type and c["status"] == "True"
        for c in (body.get("status") or {}).get("conditions") or ()
    )
