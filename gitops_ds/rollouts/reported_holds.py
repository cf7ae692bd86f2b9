"""Which holds of a rollout were reported, so that each is one event while it lasts or returns."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gitops_ds.model.rollouts.staged_rollout import HoldKind, StageHold

RETURNS = 300.0  # seconds in which a hold that ended and begins again is the same one

_HoldOfTarget = tuple[str, HoldKind, str]  # the hash of the target, the kind, and the subject


class ReportedHolds(msgspec.Struct, frozen=True):
    """The hold in force, None without one, and the ends of recent holds, in seconds since 1970."""

    current: _HoldOfTarget | None = None
    ended: Mapping[_HoldOfTarget, float] = {}

    @property
    def is_new(self) -> bool:
        """Whether the hold in force must be reported."""
        return self.current is not None and self.current not in self.ended

    def after(self, target: str, hold: StageHold | None, now: float) -> ReportedHolds:
        """The holds after a decision about the target with this hash."""
        ended = {one: end for one, end in self.ended.items() if now - end <= RETURNS}
        if self.current is not None:
            ended[self.current] = now
        current = (target, hold.kind, hold.about) if hold is not None else None
        return ReportedHolds(current, ended)
