"""The events of the drift of a reconciliation. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gitops_ds.model.change import Drifted
from gitops_ds.model.deployer_state import KnownDrift
from gitops_ds.model.events.base import Event
from gitops_ds.model.events.drift import DriftContested, DriftDetected, DriftPaused
from gitops_ds.model.objects import Key
from gitops_ds.model.skipped import DriftPolicy
from gitops_ds.plan import drift


def changed(
    drifted: Mapping[Key, Drifted], before: Mapping[Key, KnownDrift], now: float, hold_for: float
) -> Iterator[Event]:
    """One event for each change of the drift; `before` is the stored drift of the previous
    reconciliation.
    """
    for key, left in drift.standing(drifted, before, now).items():
        was, one = before.get(key), drifted[key]
        if was is not None and (was.choice, was.words) == (left.choice, left.words):
            continue
        yield (DriftContested if one.contested else DriftDetected)(now, key, one, left.words)
        if one.choice is DriftPolicy.HOLD:
            yield DriftPaused(now, key, one, left.words, left.since + hold_for)
