"""The progress of rollouts as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops_ds.cli.parameters import options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.model.objects import Key
    from gitops_ds.model.rollouts.rollout_progress import RolloutProgress


class RolloutLines:
    """Prints messages as lines on stderr."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def report(self, message: str) -> None:
        """Shows a message of the wait."""
        options.say(message, quiet=self._quiet)

    def progress(self, key: Key, progress: RolloutProgress) -> None:
        """Shows the nodes that are done; the messages contain them."""
