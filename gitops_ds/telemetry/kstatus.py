"""The status of an agent as conditions for other tools: Ready, Reconciling, Stalled, with the
reasons of Flux. Pure.

`Reconciling` and `Stalled` exist only while they are true.
https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md and
https://fluxcd.io/flux/components/kustomize/kustomizations/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gitops_ds.apimachinery import timestamps
from gitops_ds.model.health import Health, HealthState

SUCCEEDED, FAILED, PROGRESSING, RETRYING = (
    "ReconciliationSucceeded",
    "HealthCheckFailed",
    "Progressing",
    "ProgressingWithRetry",
)

_READY: Mapping[HealthState, tuple[str, str]] = {
    HealthState.HEALTHY: ("True", SUCCEEDED),
    HealthState.PROGRESSING: ("Unknown", PROGRESSING),
    HealthState.DEGRADED: ("False", FAILED),
    HealthState.FAILED: ("False", FAILED),
    HealthState.MISSING: ("False", "Missing"),
    HealthState.SUSPENDED: ("Unknown", "Suspended"),
}
_BESIDE: Mapping[HealthState, tuple[str, str]] = {
    HealthState.PROGRESSING: ("Reconciling", PROGRESSING),
    HealthState.DEGRADED: ("Reconciling", RETRYING),
    HealthState.MISSING: ("Reconciling", RETRYING),
    HealthState.FAILED: ("Stalled", FAILED),
}


def conditions(
    health: Health,
    unapplied: str,
    now: float,
    before: Iterable[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """The conditions; one that is unchanged from `before` keeps its time.

    `unapplied` is the reason why the wanted commit is not applied as a whole, else empty.
    """
    ready, message = _READY[health.state], health.message
    if unapplied and health.state is HealthState.HEALTHY:
        ready, message = ("False", "ReconciliationFailed"), unapplied
    rows = [("Ready", *ready, message)]
    if health.state in _BESIDE:
        type, reason = _BESIDE[health.state]
        rows.append((type, "True", reason, health.message))
    elif unapplied:
        rows.append(("Reconciling", "True", RETRYING, unapplied))
    since = {
        (old.get("type"), old.get("status")): str(old.get("lastTransitionTime") or "")
        for old in before
    }
    return [
        {
            "type": type,
            "status": status,
            "reason": reason,
            "message": message[:1024],
            "lastTransitionTime": since.get((type, status)) or timestamps.text(now),
        }
        for type, status, reason, message in rows
    ]
