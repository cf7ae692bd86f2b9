"""The prediction of an apply without a request to the cluster: for cluster snapshots, and where no
dry run is available. The result of a dry run is preferred.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops_ds.apimachinery import defaults
from gitops_ds.model.objects import Body
from gitops_ds.plan import ownership


def applied(live: Body, wanted: Body) -> dict[str, Any]:
    """The live object after a server-side apply of `wanted` that wins every conflict."""
    left = ownership.without_abandoned(live, wanted, live)
    return defaults.defaulted(_overlay(left, defaults.defaulted(wanted), wanted))


def _overlay(live: Any, stored: Any, wanted: Any) -> Any:
    """`stored` over `live`; a live value takes precedence over a default."""
    if isinstance(live, Mapping) and isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        both = {**live}
        for key, value in stored.items():
            if key in wanted:
                both[key] = _overlay(live.get(key), value, wanted[key]) if key in live else value
            else:
                both.setdefault(key, value)
        return both
    return stored
