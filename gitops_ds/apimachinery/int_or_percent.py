"""maxUnavailable and maxSurge: a number, or a percentage of the desired nodes.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/daemon-set-v1/#DaemonSetSpec
"""

from __future__ import annotations

import re
from typing import Any

from gitops_ds.model.daemonset import OnDelete, RollingUpdate, Share, Strategy
from gitops_ds.model.objects import Body

_PERCENT = re.compile(r"0*([0-9]{1,9})%")


def share(value: Any) -> Share | None:
    """An IntOrString as a share of the nodes; None if it is neither a count nor a percentage."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Share(max(0, value))
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    return Share(int(match[1]), percent=True) if match else None


def strategy(spec: Body) -> Strategy:
    """The update strategy of a DaemonSet's spec; absent and invalid fields have the defaults of the
    API server.
    """
    chosen = spec.get("updateStrategy") or {}
    if chosen.get("type") == "OnDelete":
        return OnDelete()
    rolling = chosen.get("rollingUpdate") or {}
    return RollingUpdate(
        share(rolling.get("maxUnavailable")) or Share(1), share(rolling.get("maxSurge")) or Share(0)
    )


def limits(strategy: RollingUpdate, desired: int) -> tuple[int, int]:
    """(maxUnavailable, maxSurge) in nodes. If both are 0, one node may be unavailable: otherwise no
    rollout would end.
    """
    unavailable, surge = strategy.max_unavailable.of(desired), strategy.max_surge.of(desired)
    return (1, 0) if desired and not unavailable and not surge else (unavailable, surge)
