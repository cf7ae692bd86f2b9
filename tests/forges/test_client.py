"""One comment and one status for any behaviour of GitHub and GitLab: pages, other people, limits,
failures, lost answers, redirects.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from aiohttp import web

from gitops_ds.core import errors
from gitops_ds.core.values import replace
from gitops_ds.forges import forge_access
from gitops_ds.forges.client import Clock, CommentChange, Forge
from gitops_ds.forges.contract import CommitStatus, ForgeKind, PullRequestRef, StatusState
from gitops_ds.forges.forge_access import ForgeAccess, ForgeToken
from gitops_ds.forges.sticky_comment import Sticky
from tests.forges.servers import HEAD, Fault, GitHub, GitLab, Server, User
from tests.http_servers import serving

T = TypeVar("T")
MARKER = "<!-- gitops-ds:report key=check v=1 -->"
FIRST = Sticky(MARKER, "first\n", HEAD, (1, 1))
SECOND = Sticky(MARKER, "second\n", HEAD, (2, 1))
STATUS = CommitStatus(
    "gitops-ds/check", StatusState.FAILURE, "1 error, 0 warnings, 0 info", "https://ci.example/1"
)
SERVERS = pytest.mark.parametrize("kind", [ForgeKind.GITHUB, ForgeKind.GITLAB])


@dataclass
class Time:
    """A clock that a pause moves on."""

    now: float = 1_800_000_000.0
    pauses: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def clock(self) -> Clock:
        return Clock(lambda: self.now, self.sleep)


def server(kind: ForgeKind) -> Server:
    return GitHub() if kind is ForgeKind.GITHUB else GitLab()


def run(
    kind: ForgeKind,
    on: Server,
    work: Callable[[Forge], Awaitable[T]],
    *,
    token: str = "good-token",
    time: Time | None = None,
    patience: float = 120.0,
) -> T:
    """The result of the work with a client of the running server."""

    async def inner() -> T:
        async with on.running():
            project = "acme/agents" if kind is ForgeKind.GITHUB else "42"
            access = ForgeAccess(
                kind, forge_access.api_address(kind, on.url), ForgeToken("TOKEN", token), project
            )
            async with Forge(access, patience, "gitops-ds/1", (time or Time()).clock()) as forge:
                return await work(forge)

    return asyncio.run(inner())


async def both(forge: Forge) -> list[CommentChange]:
    return [
        await forge.comment(7, FIRST),
        await forge.comment(7, SECOND),
        await forge.comment(7, SECOND),
    ]


@SERVERS
def test_a_comment_is_created_once_then_updated_and_left_when_its_text_is_the_same(
    kind: ForgeKind,
) -> None:
    on = server(kind)
    assert run(kind, on, both) == [
        CommentChange.CREATED,
        CommentChange.UPDATED,
        CommentChange.UNCHANGED,
    ]
    (comment,) = on.comments
    assert comment.body == SECOND.body
    assert comment.body.startswith(
        f"{MARKER}\n<!-- gitops-ds:posted commit={HEAD} run=2.1 -->\nsecond"
    )


@SERVERS
def test_our_comment_is_found_behind_more_than_a_page_of_others(kind: ForgeKind) -> None:
    on = server(kind)
    mallory, us = on.users["other-token"], on.users["good-token"]
    for i in range(250):
        on.add(mallory, f"talk {i}")
    mine = on.add(us, FIRST.body)
    on.add(us, f"no report, though it quotes one:\n{MARKER}")
    assert run(kind, on, lambda forge: forge.comment(7, SECOND)) is CommentChange.UPDATED
    assert mine.body == SECOND.body
    assert len(on.comments) == 252


@SERVERS
def test_anothers_comment_with_our_marker_is_left_alone(kind: ForgeKind) -> None:
    on = server(kind)
    theirs = on.add(on.users["other-token"], FIRST.body)
    assert run(kind, on, lambda forge: forge.comment(7, SECOND)) is CommentChange.CREATED
    assert theirs.body == FIRST.body
    assert [comment.author.login for comment in on.comments] == ["mallory", "gitops-bot"]


@SERVERS
def test_a_comment_of_another_key_is_another_comment(kind: ForgeKind) -> None:
    on = server(kind)
    other = on.add(
        on.users["good-token"], Sticky("<!-- gitops-ds:report key=fleet v=1 -->", "x\n", HEAD).body
    )
    assert run(kind, on, lambda forge: forge.comment(7, FIRST)) is CommentChange.CREATED
    assert "key=fleet" in other.body


@SERVERS
@pytest.mark.parametrize(
    ("there", "posted"),
    [
        (SECOND, CommentChange.NEWER),
        (Sticky(MARKER, "attempt\n", HEAD, (1, 2)), CommentChange.NEWER),
        (Sticky(MARKER, "of this run\n", HEAD, (1, 1)), CommentChange.UPDATED),
        (Sticky(MARKER, "earlier\n", HEAD, (1,)), CommentChange.UPDATED),
        (Sticky(MARKER, "of another commit\n", "b" * 40, (9, 9)), CommentChange.UPDATED),
        (Sticky(MARKER, "no known time\n", HEAD), CommentChange.UPDATED),
    ],
)
def test_the_report_of_a_later_run_for_the_same_commit_stays(
    kind: ForgeKind, there: Sticky, posted: CommentChange
) -> None:
    on = server(kind)
    comment = on.add(on.users["good-token"], there.body)
    assert run(kind, on, lambda forge: forge.comment(7, FIRST)) is posted
    assert comment.body == (there if posted is CommentChange.NEWER else FIRST).body


@SERVERS
@pytest.mark.parametrize(
    ("fault", "pauses"),
    [
        (Fault(502, method="GET"), [1.0]),
        (Fault(503, {"Retry-After": "7"}, method="GET"), [7.0]),
        (Fault(429, {"Retry-After": "9"}, method="GET"), [9.0]),
        (Fault(500, method="POST"), [1.0]),
        (Fault(0, method="GET", cut=True), [1.0]),
    ],
)
def test_temporary_failures_are_retried(kind: ForgeKind, fault: Fault, pauses: list[float]) -> None:
    on, time = server(kind), Time()
    # A GET on a connection that ends is sent once more by the library itself.
    on.faults = [replace(fault, status=fault.status or 200)] * (2 if fault.cut else 1)
    assert run(kind, on, lambda forge: forge.comment(7, FIRST), time=time) is CommentChange.CREATED
    assert time.pauses == pauses
    assert len(on.comments) == 1


@pytest.mark.parametrize(
    ("status", "headers", "message", "pause"),
    [
        (403, {"X-RateLimit-Reset": "1800000030"}, "API rate limit exceeded", 31.0),
        (403, {"Retry-After": "20"}, "You have exceeded a secondary rate limit.", 20.0),
        (429, {"X-RateLimit-Reset": "1799999990"}, "too many", 1.0),
    ],
)
def test_the_rate_limits_of_github_are_respected(
    status: int, headers: dict[str, str], message: str, pause: float
) -> None:
    on, time = GitHub(), Time()
    on.faults = [Fault(status, {"X-RateLimit-Remaining": "0", **headers}, {"message": message})]
    run(ForgeKind.GITHUB, on, lambda forge: forge.status(HEAD, STATUS), time=time)
    assert time.pauses == [pause]
    assert [one["context"] for one in on.statuses] == ["gitops-ds/check"]


@SERVERS
def test_a_limit_that_lasts_longer_than_our_time_ends_it_at_once(kind: ForgeKind) -> None:
    on, time = server(kind), Time()
    on.faults = [Fault(429, {"Retry-After": "1800"}, {"message": "slow down"})]
    with pytest.raises(errors.ForgeUnreachable, match=r"429 slow down.*in 1800 s"):
        run(kind, on, lambda forge: forge.status(HEAD, STATUS), time=time)
    assert time.pauses == []


@SERVERS
@pytest.mark.parametrize(
    ("fault", "message"), [(Fault(503), "503"), (Fault(200, cut=True), "can't be reached")]
)
def test_requests_to_a_broken_server_end_within_the_time_limit(
    kind: ForgeKind, fault: Fault, message: str
) -> None:
    on, time = server(kind), Time()
    on.faults = [replace(fault) for _ in range(100)]
    start = time.now
    with pytest.raises(errors.ForgeUnreachable, match=message):
        run(kind, on, lambda forge: forge.comment(7, FIRST), time=time, patience=60)
    assert time.now - start < 60
    assert time.pauses[:5] == [1, 2, 4, 8, 16]


@SERVERS
@pytest.mark.parametrize("cut", [False, True])
def test_a_comment_whose_answer_got_lost_is_not_written_twice(kind: ForgeKind, cut: bool) -> None:
    on = server(kind)
    path = "comments" if kind is ForgeKind.GITHUB else "notes"
    on.faults = [Fault(502, {}, {}, "POST", path, applied=True, cut=cut)]
    assert run(kind, on, lambda forge: forge.comment(7, FIRST)) is CommentChange.CREATED
    assert [comment.body for comment in on.comments] == [FIRST.body]


@SERVERS
@pytest.mark.parametrize(
    ("rights", "of_github", "of_gitlab"),
    [
        ({"read"}, "`pull-requests: write`", "the scope `api` and the role Reporter"),
        (set(), "`pull-requests: read`", "the scope `api`"),
        ({"read", "comment"}, "`statuses: write`", "the scope `api` and the role Developer"),
    ],
)
def test_the_missing_right_of_a_token_is_reported(
    kind: ForgeKind, rights: set[str], of_github: str, of_gitlab: str
) -> None:
    async def work(forge: Forge) -> None:
        await forge.comment(7, FIRST)
        await forge.status(HEAD, STATUS)

    on = server(kind)
    on.users["weak"] = User("weak", 5, frozenset(rights))
    with pytest.raises(errors.ForgeDenied) as refused:
        run(kind, on, work, token="weak")
    needed = of_github if kind is ForgeKind.GITHUB else of_gitlab
    assert f"the token of TOKEN needs {needed}" in str(refused.value)
    assert "weak" not in str(refused.value)
    assert len(on.comments) == ("comment" in rights)


@SERVERS
def test_an_unknown_token_and_an_unknown_pull_request_are_reported(kind: ForgeKind) -> None:
    on = server(kind)
    with pytest.raises(errors.ForgeDenied, match="did not accept the token of TOKEN"):
        run(kind, on, lambda forge: forge.head(7), token="bad")
    with pytest.raises(errors.ForgeDenied, match=r"(pull|merge) request not found"):
        run(kind, on, lambda forge: forge.head(8))


@SERVERS
def test_the_token_is_never_sent_to_another_host_and_never_shown(kind: ForgeKind) -> None:
    on, other = server(kind), server(kind)

    async def work(forge: Forge) -> str:
        async with other.running():
            on.faults = [Fault(307, {"Location": f"{other.url}/elsewhere"})]
            return await forge.head(7)

    with pytest.raises(errors.ForgeError, match="redirects to another server") as refused:
        run(kind, on, work)
    assert other.seen == []
    on.faults = [Fault(422, {}, {"message": "good-token is\x1b[31m bad\n::error::x"})]
    with pytest.raises(errors.ForgeError) as refused:
        run(kind, on, lambda forge: forge.head(7))
    assert "good-token" not in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "location",
    [
        "https://[",
        "//[::1",
        "https://host:99999999/x",
        "https://\u2100/",
        "mailto:x",
        "http://a@b@c/",
    ],
)
def test_a_redirect_to_an_invalid_address_is_an_error_of_the_forge(location: str) -> None:
    on = GitHub()
    on.faults = [Fault(307, {"Location": location})]
    with pytest.raises(errors.ForgeError, match=r"redirects to") as refused:
        run(ForgeKind.GITHUB, on, lambda forge: forge.status(HEAD, STATUS))
    assert str(refused.value).isprintable()


def test_a_login_in_a_redirect_is_not_used_and_the_token_in_it_not_shown() -> None:
    on = GitHub()

    async def work(forge: Forge) -> str:
        on.faults = [Fault(307, {"Location": on.url.replace("://", "://good-token@") + "/x"})]
        return await forge.head(7)

    with pytest.raises(errors.ForgeError, match="redirects to another server") as refused:
        run(ForgeKind.GITHUB, on, work)
    assert "good-token" not in str(refused.value)


@pytest.mark.parametrize(
    "after",
    [
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan 2026 00:00:00 +99999999999999999999",
        "9" * 5000,
    ],
)
def test_a_time_of_a_retry_without_meaning_is_not_used(after: str) -> None:
    on = GitHub()
    on.faults = [Fault(503, {"Retry-After": after})]
    try:
        run(ForgeKind.GITHUB, on, lambda forge: forge.status(HEAD, STATUS))
    except errors.ForgeUnreachable:
        assert after.isdigit()


@pytest.mark.parametrize("compressed", [False, True])
def test_an_answer_takes_no_memory_beyond_its_limit(compressed: bool) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if compressed:
            assert request.headers["Accept-Encoding"] == "identity"
            response.headers["Content-Encoding"] = "gzip"
        await response.prepare(request)
        piece = gzip.compress(bytes(64 << 20)) if compressed else bytes(1 << 20)
        with contextlib.suppress(ConnectionError):
            for _ in range(1 if compressed else 1000):
                await response.write(piece)
                sent.append(len(piece))
        return response

    async def main() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", endless)
        async with serving(app) as url:
            access = ForgeAccess(ForgeKind.GITHUB, url, ForgeToken("TOKEN", "t"), "a/b")
            async with Forge(access, 60.0) as forge:
                with pytest.raises(errors.ForgeError, match=r"not one of|larger than 32 MiB"):
                    await forge.head(7)

    sent: list[int] = []
    asyncio.run(main())
    assert sum(sent) < 64 << 20


def test_a_repository_that_was_renamed_is_followed_on_the_same_host() -> None:
    on = GitHub()

    async def work(forge: Forge) -> str:
        on.faults = [Fault(301, {"Location": "/api/v3/repos/acme/agents/pulls/7"})]
        return await forge.head(7)

    assert run(ForgeKind.GITHUB, on, work) == HEAD
    on.faults = [Fault(307, {"Location": f"/api/v3/repos/acme/agents/statuses/{HEAD}"})]
    run(ForgeKind.GITHUB, on, lambda forge: forge.status(HEAD, STATUS))
    assert len(on.statuses) == 1
    on.faults = [Fault(302, {"Location": f"/api/v3/repos/acme/agents/statuses/{HEAD}"})]
    with pytest.raises(errors.ForgeError, match="redirect"):
        run(ForgeKind.GITHUB, on, lambda forge: forge.status(HEAD, STATUS))


@SERVERS
def test_a_server_that_is_not_a_forge_is_reported(kind: ForgeKind) -> None:
    on = server(kind)
    for body in ("hello", [], {"head": {}}, {"head": "x", "sha": 3}):
        on.faults = [Fault(200, {}, body)]
        with pytest.raises(errors.ForgeError, match="check --forge and --url"):
            run(kind, on, lambda forge: forge.head(7))


def test_a_status_has_the_fields_of_each_forge() -> None:
    long = replace(STATUS, description="x" * 300, run="77")
    on: Server = GitHub()
    run(ForgeKind.GITHUB, on, lambda forge: forge.status(HEAD, long))
    (status,) = on.statuses
    assert status == {
        "sha": HEAD,
        "state": "failure",
        "context": "gitops-ds/check",
        "description": "x" * 139 + "…",
        "target_url": "https://ci.example/1",
    }
    on = GitLab()
    run(ForgeKind.GITLAB, on, lambda forge: forge.status(HEAD, long))
    (status,) = on.statuses
    assert (status["state"], status["name"]) == ("failed", "gitops-ds/check")
    assert (status["pipeline_id"], len(status["description"])) == (77, 255)


def test_a_status_that_gitlab_has_already_is_not_a_failure() -> None:
    on = GitLab()

    async def twice(forge: Forge) -> None:
        await forge.status(HEAD, STATUS)
        await forge.status(HEAD, STATUS)

    run(ForgeKind.GITLAB, on, twice)
    assert len(on.statuses) == 1


def test_the_pull_request_of_a_fork_is_found_by_branch_and_commit() -> None:
    on = GitHub()
    assert run(ForgeKind.GITHUB, on, lambda forge: forge.find("contributor:fix", HEAD)) == 7
    assert run(ForgeKind.GITHUB, on, lambda forge: forge.find("contributor:fix", "b" * 40)) == 0
    assert (
        run(ForgeKind.GITHUB, on, lambda forge: forge.find("contributor:&head=acme:main", HEAD))
        == 0
    )


def test_a_projects_name_is_one_part_of_a_path() -> None:
    place = PullRequestRef("acme/agents?x=1#y", 7)
    paths = [
        forge_access.api(kind).get_pull_request(place).path
        for kind in (ForgeKind.GITHUB, ForgeKind.GITLAB)
    ]
    assert paths == [
        "repos/acme/agents%3Fx%3D1%23y/pulls/7",
        "projects/acme%2Fagents%3Fx%3D1%23y/merge_requests/7",
    ]
