"""The page over HTTP: pages, files, the stream of changes, sign-in. Every response has the same
strict headers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qsl

import orjson
from aiohttp import web

from gitops_ds.core import errors
from gitops_ds.service.web import connections
from gitops_ds.service.web.page import access
from gitops_ds.service.web.page.access import AccessKind, AccessVerdict, PageGuard, PageRequest
from gitops_ds.service.web.page.pages import Book
from gitops_ds.service.web.page.rendering import ASSETS, Drawn
from gitops_ds.service.web.page.view import View
from gitops_ds.service.web.server import Routes

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src "
    "'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # with no-referrer a browser hides the Origin of a POST as well
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
# the parameters of pages; others are ignored
_KNOWN = ("q", "health", "sort", "down", "reason", "first")
_LONGEST = 200  # characters of one of them
SETTLE = 0.25  # seconds in which changes are gathered
BEAT = 20.0  # seconds without a change after which a stream sends the time
LONGEST_STREAM = 3600.0  # seconds, after which the browser connects and is authorized again
STREAMS = 200  # at once
STREAMS_PER_PEER = 50  # of one address, which may be a proxy
_FORM_BYTES = 4096
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def routes(view: View, door: PageGuard) -> Routes:
    """All paths of the page; Raises UsageError if the token is not usable."""
    if door.token is not None:
        door.token.value()
    return _PageHandler(view, door).routes()


class _PageHandler:
    def __init__(self, view: View, door: PageGuard) -> None:
        self._book = Book(view, may_leave=door.kind is AccessKind.TOKEN)
        self._door, self._streams = door, dict[asyncio.BaseTransport, str]()

    def routes(self) -> Routes:
        pages = (
            "/",
            "/agents/{namespace}/{name}",
            "/agents/{namespace}/{name}/nodes",
            "/nodes",
            "/nodes/{name}",
            "/events",
            "/clusters",
            "/wall",
        )
        commits = web.get("/commits/{id:.+}", self._guarded(self._show))
        all_routes = [web.get(path, self._guarded(self._show)) for path in pages]
        all_routes += [commits, web.get("/live", self._guarded(self._live))]
        all_routes += [web.get(f"/{path}", _asset) for path in ASSETS]
        if self._door.kind is AccessKind.TOKEN:
            all_routes += [
                web.get("/login", self._sign_in_page),
                web.post("/login", self._sign_in),
                web.post("/logout", self._guarded(self._sign_out)),
            ]
        return [*all_routes, web.get("/{path:.*}", self._guarded(self._show))]  # not found

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                verdict, why = self._door.check(_page_request(request))
            except errors.UsageError as error:  # the token's file is missing now
                verdict, why = AccessVerdict.DENY, str(error)
            path = request.path.removeprefix("/")
            if verdict is AccessVerdict.DENY:
                return self._problem(request, 403, "Not allowed", why)
            if verdict is AccessVerdict.SIGN_IN:
                if path == "live":
                    return self._problem(request, 401, "Not signed in", why)
                return web.Response(
                    status=303, headers={**HEADERS, "Location": "../" * path.count("/") + "login"}
                )
            try:
                return await handler(request)
            except errors.NoMatch as error:
                return self._problem(request, 404, "Not found", str(error))

        return guarded

    async def _show(self, request: web.Request) -> web.StreamResponse:
        return _html(
            request, await self._book.page(request.path.removeprefix("/"), _query(request.query))
        )

    def _problem(self, request: web.Request, status: int, title: str, words: str) -> web.Response:
        path = request.path.removeprefix("/")
        return _html(
            request,
            self._book.plain("problem.html", {"title": title, "words": words}, path),
            status,
        )

    async def _sign_in_page(self, request: web.Request) -> web.StreamResponse:
        return _html(request, self._book.plain("login.html", {"wrong": ""}))

    async def _sign_in(self, request: web.Request) -> web.StreamResponse:
        try:
            verdict, why = self._door.check(_page_request(request))
            if verdict is AccessVerdict.DENY:
                return self._problem(request, 403, "Not allowed", why)
            token = await _token_of(request)
            if token is None:
                return self._problem(request, 413, "Too long", "the form is too long for a token")
            if not self._door.accepts(token):
                wrong = {"wrong": "The token is wrong."}
                return _html(request, self._book.plain("login.html", wrong), 401)
        except errors.UsageError as error:  # the token's file is missing now
            return self._problem(request, 403, "Not allowed", str(error))
        answer = web.Response(status=303, headers={**HEADERS, "Location": "./"})
        _set_cookie(answer, request, self._door.cookie(), access.STAYS)
        return answer

    async def _sign_out(self, request: web.Request) -> web.StreamResponse:
        answer = web.Response(status=303, headers={**HEADERS, "Location": "login"})
        _set_cookie(answer, request, "", 0)
        return answer

    async def _live(self, request: web.Request) -> web.StreamResponse:
        peer, transport = connections.peer_of(request), request.transport
        if transport is None or self._is_full(peer):
            return self._problem(
                request, 503, "Too many live pages", "reload the page from time to time instead"
            )
        self._streams[transport] = peer
        try:
            return await self._follow(request)
        finally:
            del self._streams[transport]

    def _is_full(self, peer: str) -> bool:
        """Whether the address has too many streams; one that a browser left ends with its next
        write, and does not count.
        """
        peers = [
            of_stream
            for transport, of_stream in self._streams.items()
            if not transport.is_closing()
        ]
        return len(peers) >= STREAMS or peers.count(peer) >= STREAMS_PER_PEER

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        path, _, query = request.query.get("of", "").partition("?")
        parameters = _query(dict(parse_qsl(query)))
        await self._book.page(path, parameters)  # raises NoMatch before the stream starts
        answer = web.StreamResponse(
            headers={**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        await answer.prepare(request)
        try:
            async with asyncio.timeout(LONGEST_STREAM):
                since = request.headers.get("Last-Event-ID") or request.query.get("since", "")
                await self._stream(answer, (path, parameters), since)
        except (TimeoutError, ConnectionError):
            pass
        return answer

    async def _stream(
        self, answer: web.StreamResponse, of: tuple[str, Mapping[str, str]], since: str
    ) -> None:
        """Sends the changes of a page until the browser disconnects."""
        view, book = self._book.view, self._book
        version = view.version
        shown = await book.page(*of)
        await answer.write(b"retry: 2000\n\n")
        await answer.write(self._time(version))
        # a page that was rendered during a change is of neither version
        if since != book.token(version) or version != view.version:
            await asyncio.sleep(SETTLE)  # the page loads again, with its version
            await answer.write(_event("whole", book.token(version), {}))
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(view.changed(version), BEAT)
            if view.version == version:
                await answer.write(self._time(version))
                continue
            await asyncio.sleep(SETTLE)
            version = view.version
            try:
                fresh = await book.page(*of)
            except errors.NoMatch:
                await answer.write(_event("over", book.token(version), {}))
                return
            changes = difference(shown, fresh)
            shown = fresh
            if changes is None:
                await answer.write(_event("whole", book.token(version), {}))
            elif changes:
                await answer.write(self._time(version))
                await answer.write(_event("change", book.token(version), changes))

    def _time(self, version: int) -> bytes:
        """The server's time, which relative times on the page refer to."""
        return _event("time", self._book.token(version), {"now": self._book.view.now()})


def difference(old: Drawn, new: Drawn) -> dict[str, object] | None:
    """The changed pieces and cells; empty without changes, None for a page with another shape,
    which is sent as a whole.
    """
    if old.shape != new.shape:
        return None
    pieces = {id: html for id, html in new.pieces.items() if old.pieces[id] != html}
    codes = [
        (place, code)
        for place, (was, code) in enumerate(zip(old.codes, new.codes, strict=True))
        if was != code
    ]
    words = new.words if new.words != old.words else ""
    # Sorted rows change places.
    order = (
        [id for id in new.pieces if id.startswith(("r/", "wr/"))]
        if list(old.pieces) != list(new.pieces)
        else []
    )
    changes = {"pieces": pieces, "cells": codes, "order": order, "words": words}
    return {name: value for name, value in changes.items() if value}


def _event(name: str, id: str, data: Mapping[str, object]) -> bytes:
    return b"event: %s\nid: %s\ndata: %s\n\n" % (name.encode(), id.encode(), orjson.dumps(data))


def _page_request(request: web.Request) -> PageRequest:
    return PageRequest(
        connections.address_of(request.transport),
        request.method,
        request.host,
        request.headers,
        request.cookies.get(access.COOKIE, ""),
    )


async def _token_of(request: web.Request) -> str | None:
    """The token of the form; None for a form that is too long."""
    form = bytearray()
    try:
        async for piece in connections.body_of(request):
            form += piece
            if len(form) > _FORM_BYTES:
                return None
    except web.RequestPayloadError:
        return ""
    return dict(parse_qsl(form.decode("utf-8", "replace"))).get("token", "")


def _query(parameters: Mapping[str, str]) -> dict[str, str]:
    return {name: parameters[name][:_LONGEST] for name in _KNOWN if parameters.get(name)}


def _html(request: web.Request, drawn: Drawn, status: int = 200) -> web.Response:
    headers = {**HEADERS, "Vary": "Accept-Encoding"}
    body = drawn.html
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"], body = "gzip", drawn.small
    return web.Response(
        status=status, body=body, content_type="text/html", charset="utf-8", headers=headers
    )


async def _asset(request: web.Request) -> web.StreamResponse:
    """The same for all users, so without sign-in."""
    asset = ASSETS[request.path.removeprefix("/")]
    headers = {
        **HEADERS,
        "Cache-Control": "public, max-age=31536000, immutable",
        "Vary": "Accept-Encoding",
    }
    body = asset.data
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"], body = "gzip", asset.small
    return web.Response(body=body, content_type=asset.type, charset="utf-8", headers=headers)


def _set_cookie(answer: web.Response, request: web.Request, value: str, age: int) -> None:
    secure = request.secure or request.headers.get("X-Forwarded-Proto") == "https"
    answer.set_cookie(
        access.COOKIE, value, max_age=age, httponly=True, samesite="Strict", secure=secure, path="/"
    )
