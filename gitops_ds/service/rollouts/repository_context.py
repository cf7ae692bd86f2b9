"""What the tasks beside the loop of one repository share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from gitops_ds.core.events.base import Emit
from gitops_ds.core.rollouts.stopped_rollouts import StoppedRollouts
from gitops_ds.service.settings.repository import RepositorySettings

R_co = TypeVar("R_co", covariant=True)


class RepositoryContext(msgspec.Struct, Generic[R_co], frozen=True):
    """A followed repository, of which each task uses a part.

    `stopped_rollouts` returns those of the last reconciliation, None before the first and while
    another replica leads. `clock` returns seconds since 1970, `chance` a number in [0, 1).
    """

    repository: R_co
    settings: RepositorySettings
    emit: Emit
    clock: Callable[[], float]
    chance: Callable[[], float]
    stopped_rollouts: Callable[[], StoppedRollouts | None] = lambda: None
