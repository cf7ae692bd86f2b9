"""GitHub and GitLab by their documentation, on a local port: users, permissions, pages, limits,
failures on demand.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.http_servers import serving
from tests.thread_loop import ThreadLoop

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ALL = frozenset({"read", "comment", "status"})
HEAD = "a" * 40


@dataclass
class User:
    """An account, and the permissions of its token."""

    login: str
    id: int
    rights: frozenset[str] = ALL


@dataclass
class Fault:
    """The response to the next matching request; `applied`: the request was executed, and its
    response lost.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    method: str = ""
    path: str = ""
    applied: bool = False
    cut: bool = False  # the connection ends without an answer


@dataclass
class Seen:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message


@dataclass
class Comment:
    id: int
    author: User
    body: str


class Server:
    """The common part: one pull request, number 7, of acme/agents."""

    prefix = ""

    def __init__(self) -> None:
        self.users = {"good-token": User("gitops-bot", 11), "other-token": User("mallory", 66)}
        self.head = HEAD
        self.comments: list[Comment] = []
        self.statuses: list[dict[str, Any]] = []
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Server]:
        @web.middleware
        async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._answer(request, handler)

        app = web.Application(middlewares=[answer])
        self.routes(app.router)
        async with serving(app) as self.url:
            yield self

    @contextmanager
    def in_a_thread(self) -> Iterator[Server]:
        """As `running`, for a test without an event loop."""
        loop, running = ThreadLoop(), self.running()
        try:
            yield loop.do(running.__aenter__())
        finally:
            loop.do(running.__aexit__(None, None, None))
            loop.stop()

    def add(self, author: User, body: str) -> Comment:
        made = Comment(1000 + len(self.comments), author, body)
        self.comments.append(made)
        return made

    def made(self, method: str = "") -> list[str]:
        return [f"{one.method} {one.path}" for one in self.seen if method in ("", one.method)]

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        text = await request.text()
        self.seen.append(
            Seen(
                request.method,
                request.path_qs,
                dict(request.headers),
                json.loads(text) if text else None,
            )
        )
        fault = next(
            (
                one
                for one in self.faults
                if one.method in ("", request.method) and one.path in request.path
            ),
            None,
        )
        if fault:
            self.faults.remove(fault)
            if fault.applied:
                await handler(request)
            if fault.cut:
                assert request.transport is not None
                request.transport.close()
            return web.json_response(fault.body, status=fault.status, headers=dict(fault.headers))
        try:
            return await handler(request)
        except Refused as refused:
            return web.json_response({"message": refused.message}, status=refused.status)

    def _user(self, request: web.Request, right: str, token: str) -> User:
        user = self.users.get(token)
        if user is None:
            raise Refused(401, self.unknown)
        if right not in user.rights:
            raise Refused(self.forbidden[0], self.forbidden[1])
        return user

    unknown = "Bad credentials"
    forbidden = (403, "Resource not accessible by integration")

    def routes(self, router: web.UrlDispatcher) -> None:
        raise NotImplementedError

    def who(self, request: web.Request, right: str) -> User:
        raise NotImplementedError

    async def create(self, request: web.Request) -> web.Response:
        made = self.add(self.who(request, "comment"), (await request.json())["body"])
        return web.json_response({"id": made.id}, status=201)

    async def update(self, request: web.Request) -> web.Response:
        comment = self._found(request.match_info["id"], self.who(request, "comment"))
        comment.body = (await request.json())["body"]
        return web.json_response({"id": comment.id})

    def _page(self, request: web.Request) -> tuple[list[Comment], dict[str, str]]:
        """https://docs.github.com/rest/using-the-rest-api/using-pagination-in-the-rest-api, GitLab
        alike: at most 100.
        """
        size = min(int(request.query.get("per_page", "30")), 100)
        page = int(request.query.get("page", "1"))
        page_of_comments = self.comments[(page - 1) * size : page * size]
        links = [f'<{request.url.update_query(page=1)}>; rel="first"']
        if page * size < len(self.comments):
            links.append(f'<{request.url.update_query(page=page + 1)}>; rel="next"')
        return page_of_comments, {"Link": ", ".join(links)}

    def _found(self, id: str, user: User) -> Comment:
        comment = next((one for one in self.comments if str(one.id) == id), None)
        if comment is None:
            raise Refused(404, "Not Found")
        if comment.author is not user:
            raise Refused(403, "not yours")
        return comment


class GitHub(Server):
    """https://docs.github.com/rest, with the paths of GitHub Enterprise: /api/v3, /api/graphql."""

    def routes(self, router: web.UrlDispatcher) -> None:
        repository = "/api/v3/repos/acme/agents"
        router.add_post("/api/graphql", self.viewer)
        router.add_get(f"{repository}/pulls", self.pulls)
        router.add_get(f"{repository}/pulls/7", self.pull)
        router.add_get(f"{repository}/issues/7/comments", self.list)
        router.add_post(f"{repository}/issues/7/comments", self.create)
        router.add_patch(f"{repository}/issues/comments/{{id}}", self.update)
        router.add_post(f"{repository}/statuses/{{sha}}", self.status)

    def who(self, request: web.Request, right: str) -> User:
        if not request.headers.get("User-Agent", "").startswith("gitops-ds/"):
            raise Refused(403, "Request forbidden by administrative rules")
        return self._user(
            request, right, request.headers.get("Authorization", "").removeprefix("Bearer ")
        )

    async def viewer(self, request: web.Request) -> web.Response:
        user = self.who(request, "read")
        assert (await request.json())["query"] == "{viewer{login}}"
        return web.json_response({"data": {"viewer": {"login": user.login}}})

    async def pull(self, request: web.Request) -> web.Response:
        self.who(request, "read")
        return web.json_response(
            {"number": 7, "head": {"sha": self.head}, "merge_commit_sha": "b" * 40}
        )

    async def pulls(self, request: web.Request) -> web.Response:
        self.who(request, "read")
        fits = (
            request.query.get("head") == "contributor:fix" and request.query.get("state") == "open"
        )
        return web.json_response([{"number": 7, "head": {"sha": self.head}}] if fits else [])

    async def list(self, request: web.Request) -> web.Response:
        self.who(request, "read")
        page, headers = self._page(request)
        items = [
            {
                "id": one.id,
                "user": {"login": one.author.login, "id": one.author.id},
                "body": one.body,
            }
            for one in page
        ]
        return web.json_response(
            [{**items[0], "user": None, "id": 1, "body": "a ghost"}, *items] if items else [],
            headers=headers,
        )

    async def status(self, request: web.Request) -> web.Response:
        self.who(request, "status")
        body = await request.json()
        assert body["state"] in ("error", "failure", "pending", "success")
        if len(body["description"]) > 140:
            raise Refused(422, "Validation Failed")
        self.statuses.append({**body, "sha": request.match_info["sha"]})
        return web.json_response({}, status=201)


class GitLab(Server):
    """https://docs.gitlab.com/api/; the project is named by number or by path."""

    unknown = "401 Unauthorized"
    forbidden = (403, "403 Forbidden")

    def routes(self, router: web.UrlDispatcher) -> None:
        for project in ("42", "acme%2Fagents"):
            merge_request = f"/api/v4/projects/{project}/merge_requests/7"
            router.add_get(merge_request, self.merge_request)
            router.add_get(f"{merge_request}/notes", self.list)
            router.add_post(f"{merge_request}/notes", self.create)
            router.add_put(f"{merge_request}/notes/{{id}}", self.update)
            router.add_post(f"/api/v4/projects/{project}/statuses/{{sha}}", self.status)
        router.add_get("/api/v4/user", self.user)

    def who(self, request: web.Request, right: str) -> User:
        if "JOB-TOKEN" in request.headers:  # none of these end points takes it
            raise Refused(401, "401 Unauthorized")
        return self._user(request, right, request.headers.get("PRIVATE-TOKEN", ""))

    async def user(self, request: web.Request) -> web.Response:
        user = self.who(request, "read")
        return web.json_response({"id": user.id, "username": user.login})

    async def merge_request(self, request: web.Request) -> web.Response:
        self.who(request, "read")
        return web.json_response({"iid": 7, "sha": self.head, "diff_refs": {"head_sha": self.head}})

    async def list(self, request: web.Request) -> web.Response:
        self.who(request, "read")
        # else the newest are first, and pages move while they are read
        assert request.query["sort"] == "asc"
        page, headers = self._page(request)
        items = [
            {"id": one.id, "author": {"id": one.author.id}, "body": one.body, "system": False}
            for one in page
        ]
        return web.json_response(items, headers=headers)

    async def status(self, request: web.Request) -> web.Response:
        self.who(request, "status")
        body = await request.json()
        assert body["state"] in ("pending", "running", "success", "failed", "canceled", "skipped")
        last = self.statuses[-1] if self.statuses else None
        if last and last["name"] == body["name"] and last["state"] == body["state"]:
            raise Refused(
                400,
                f"Cannot transition status via :run from :{last['state']} (Reason(s): Status "
                "cannot transition)",
            )
        self.statuses.append({**body, "sha": request.match_info["sha"]})
        return web.json_response({}, status=201)
