"""The powers of the controller."""

from __future__ import annotations

from enum import StrEnum


class Powers(StrEnum):
    """The permissions of the controller. Decisions are the same with all of them.

    OBSERVE decides without any writes; PACE writes only for agents with a rollout policy; FULL is
    the cluster's only DaemonSet controller.
    """

    OBSERVE = "observe"
    PACE = "pace"
    FULL = "full"
