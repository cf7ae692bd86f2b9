"""The approving reviews of the pull request of a commit, and the members of teams.

A review counts if it is for the merged head, is the reviewer's last verdict, and is not dismissed;
reviews by the author do not count, and neither do those of a pull request into another branch, of
which a fast-forward merge has the same commits. The number of requests is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.values import replace
from gitops_ds.forges.client import Forge
from gitops_ds.forges.contract import (
    ForgeApi,
    ForgeRequest,
    MergedPullRequest,
    PullRequestRef,
    Review,
    ReviewState,
)

T = TypeVar("T")
MOST_REQUESTS = 30  # in one attempt
_MOST_PAGES = 5


class ApprovingReview(msgspec.Struct, frozen=True):
    """A review that approves the merged head of a pull request."""

    number: int
    user: str
    user_id: str
    head: str = ""


class ReviewReader:
    """Reads the reviews of one repository, in one attempt."""

    def __init__(self, forge: Forge, api: ForgeApi, project: str, branch: str = "") -> None:
        """`branch` is the followed one; empty for a tag or a commit, with any branch."""
        self._forge, self._api, self._project, self._branch = forge, api, project, branch
        self._left = MOST_REQUESTS

    async def approving(self, commit: str) -> tuple[ApprovingReview, ...]:
        """The approving reviews of the merged pull requests of the commit."""
        reviews: list[ApprovingReview] = []
        ref = PullRequestRef(self._project)
        for pull in await self._send(self._api.list_merged(ref, commit), self._api.read_merged):
            if self._branch in ("", pull.base):
                merged = await self._merged(pull)
                reviews += approving(merged, await self._reviews(merged))
        return tuple(reviews)

    async def _merged(self, pull: MergedPullRequest) -> MergedPullRequest:
        """The pull request with the head that was merged."""
        ref = PullRequestRef(self._project, pull.number)
        if (request := self._api.get_merged_head(ref)) is None:
            return pull
        head = await self._send(request, lambda reply: self._api.read_merged_head(reply, ref))
        return replace(pull, head=head)

    async def is_member(self, team: str, review: ApprovingReview) -> bool:
        """Whether the reviewer is an active member of a team; False if the team can't be read."""
        id: str | None = team
        if (request := self._api.find_team(team)) is not None:
            id = await self._send(request, lambda reply: self._api.read_team(reply, team))
        if id is None:
            return False
        request = self._api.get_member(id, review.user, review.user_id)
        return await self._send(request, lambda reply: self._api.read_member(reply, review.user))

    async def _reviews(self, pull: MergedPullRequest) -> list[Review]:
        ref, reviews = PullRequestRef(self._project, pull.number), list[Review]()
        for page in range(1, _MOST_PAGES + 1):
            request = self._api.list_reviews(ref, page)
            some = await self._send(request, self._api.read_reviews) if request else ()
            if not some:  # the size of a page is that of the server
                break
            reviews += some
        else:
            raise errors.ForgeError(f"pull request {pull.number} has too many reviews")
        if (request := self._api.list_heads(ref)) is not None:
            heads = await self._send(request, self._api.read_heads)
            return [review.at_head(heads) for review in reviews]
        return reviews

    async def _send(self, request: ForgeRequest, read: Callable[[Any], T]) -> T:
        self._left -= 1
        if self._left < 0:
            raise errors.ForgeError(f"the reviews need more than {MOST_REQUESTS} requests")
        return await self._forge.request(request, read)


def approving(pull: MergedPullRequest, reviews: Iterable[Review]) -> Iterator[ApprovingReview]:
    """The reviews that approve the merged head, of the oldest first."""
    last: dict[str, Review] = {}
    for review in reviews:
        if review.state is not None:
            last[review.user] = review
    for user, review in last.items():
        is_of_head = pull.head != "" and review.commit == pull.head
        if review.state is ReviewState.APPROVED and is_of_head and user != pull.author:
            yield ApprovingReview(pull.number, user, review.user_id, pull.head)
