"""The progress of a rollout in nodes, and its remaining time."""

from __future__ import annotations

from dataclasses import dataclass, field

# from this share of a rollout on, only its own pace counts
_PACE_KNOWN = 0.25


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """The done nodes of a rollout, and their total.

    `left` are the remaining seconds by the stages of a staged rollout, 0 if they can't be
    estimated; None for other rollouts.
    """

    done: int
    nodes: int
    left: float | None = field(default=None, compare=False)

    @property
    def share(self) -> float:
        """The done part, from 0 to 1."""
        return self.done / self.nodes if self.nodes else 0.0


def seconds_left(
    first: RolloutProgress, now: RolloutProgress, elapsed: float, estimate: float | None = None
) -> float | None:
    """The remaining seconds, None if unknown: by the stages of a staged rollout, else by the pace
    since the progress `first`, which was `elapsed` seconds ago; at the beginning by `estimate`, the
    simulated seconds of the whole rollout.
    """
    if now.nodes and now.done >= now.nodes:
        return 0.0
    if now.left is not None:
        return now.left or None
    moved = now.share - first.share
    by_pace = elapsed * (1 - now.share) / moved if moved > 0 else None
    if estimate is None:
        return by_pace
    # a simulation that has exceeded its time predicts nothing
    by_estimate = estimate * (1 - now.share) if moved > 0 else estimate - elapsed
    if by_pace is None:
        return by_estimate if by_estimate > 0 else None
    weight = min(1.0, moved / _PACE_KNOWN)
    return weight * by_pace + (1 - weight) * by_estimate
