"""The back-off between two deletions of failed pods on one node, equal to upstream's
(failedPodsBackoff of daemon_controller.go).
"""

from __future__ import annotations

from gitops_ds.model.decision import FailedPodBackoff

FIRST_DELAY, LONGEST_DELAY = 1.0, 900.0  # seconds
FORGET_AFTER = 2 * LONGEST_DELAY  # seconds without a failure, after which the delay starts again


def following(last: FailedPodBackoff | None, now: float) -> FailedPodBackoff:
    """The back-off after a further failed pod: twice the last delay, up to the longest one."""
    if last is None or now - last.since > FORGET_AFTER:
        return FailedPodBackoff(now, FIRST_DELAY)
    return FailedPodBackoff(now, min(2 * last.delay, LONGEST_DELAY))
