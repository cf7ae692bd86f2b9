"""The settings of a repository's approvers of stages of a rollout."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gitops_ds.errors import SettingsError
from gitops_ds.model.rollouts.stage_approval import Approver
from gitops_ds.settings.base import NonEmptyText, SettingsGroup, describe

ApproverName = Annotated[str, msgspec.Meta(pattern=r"^[^\s,]+$")]


class ApproverSettings(SettingsGroup, frozen=True):
    """A team or a user in `approval.from` of a rollout policy."""

    keys: Annotated[
        frozenset[NonEmptyText],
        describe(
            "Keys of repository.verify that sign commits: fingerprints, or principals of "
            "allowedSignersFile."
        ),
    ] = frozenset()
    users: Annotated[frozenset[NonEmptyText], describe("User names of the forge, for reviews.")] = (
        frozenset()
    )
    teams: Annotated[
        frozenset[NonEmptyText],
        describe("Teams of the forge, ORGANIZATION/TEAM; with GitLab the path of a group."),
    ] = frozenset()

    def __post_init__(self) -> None:
        """Raises SettingsError for an approver without a key, a user and a team."""
        if not (self.keys or self.users or self.teams):
            raise SettingsError(
                "repository.approvers: an approver needs keys, users or teams, or can never approve"
            )
        if wrong := sorted(one for one in self.teams if not one.strip("/")):
            raise SettingsError(f"repository.approvers: {wrong[0]!r} is not a team")

    def named(self, name: str) -> Approver:
        """The approver; names of users and teams are compared without case."""
        users = frozenset(one.lower() for one in self.users)
        return Approver(name, self.keys, users, frozenset(one.strip("/") for one in self.teams))
