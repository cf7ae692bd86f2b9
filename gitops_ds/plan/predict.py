"""The prediction of an apply without a request to the cluster: for cluster snapshots, and if no dry
run is available. The result of a dry run is preferred.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops_ds.apimachinery import defaults
from gitops_ds.model.objects import Body
from gitops_ds.plan import diff, ownership


def applied(live: Body, desired: Body) -> dict[str, Any]:
    """The live object after a server-side apply of `desired` that wins every conflict."""
    left = ownership.without_abandoned(live, desired, live)
    return defaults.defaulted(_overlay(left, defaults.defaulted(desired), desired))


def lost_empty(written: Body, desired: Body) -> bool:
    """Whether an apply removed a mapping that became empty (`affinity: {}`) instead of its content.

    The next apply adds it: a correction of drift without a drift, and a second rollout.
    """
    return any(
        change.new == {} and change.old is None
        for change in diff.compare(written, applied(written, desired))
    )


def _overlay(live: Any, stored: Any, desired: Any) -> Any:
    """`stored` over `live`; a live value takes precedence over a default."""
    if isinstance(live, Mapping) and isinstance(stored, Mapping) and isinstance(desired, Mapping):
        both = {**live}
        for key, value in stored.items():
            if key in desired:
                both[key] = _overlay(live.get(key), value, desired[key]) if key in live else value
            else:
                both.setdefault(key, value)
        return both
    return stored
