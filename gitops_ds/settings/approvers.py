"""The settings of a repository's approvers: who agrees to a stage of a rollout."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gitops_ds.errors import SettingsError
from gitops_ds.model.stage_approval import Approver
from gitops_ds.settings.base import NonEmptyText, SettingsGroup, describe

ApproverName = Annotated[str, msgspec.Meta(pattern=r"^[^\s,]+$")]


class ApproverSettings(SettingsGroup, frozen=True):
    """A team or a person that `approval.from` of a rollout policy names."""

    keys: Annotated[
        frozenset[NonEmptyText],
        describe(
            "Keys of repository.verify that sign commits: fingerprints, or principals of "
            "allowedSignersFile."
        ),
    ] = frozenset()

    def __post_init__(self) -> None:
        """Raises SettingsError for an approver without a key."""
        if not self.keys:
            raise SettingsError(
                "repository.approvers: an approver needs keys, or can never approve"
            )

    def named(self, name: str) -> Approver:
        """The approver with its name."""
        return Approver(name, self.keys)
