"""Access to the page: its decisions without a browser, and its answers over HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request
from multidict import CIMultiDict

from gitops_ds.core.errors import SettingsError, UsageError
from gitops_ds.core.sources.source_tree import CommitInfo
from gitops_ds.service.settings.base import decode
from gitops_ds.service.settings.listen import PageSettings
from gitops_ds.service.web import connections
from gitops_ds.service.web.page import access, rendering, routes
from gitops_ds.service.web.page.access import (
    AccessKind,
    AccessVerdict,
    PageGuard,
    PageRequest,
    PageToken,
)
from gitops_ds.service.web.page.pages import Book
from tests.page import fleets

TOKEN = "a token of some length"
Client = TestClient[Request, Application]
Talk = Callable[[Client], Awaitable[None]]
ADDRESS = "127.0.0.1:8080"


def request(
    host: str = ADDRESS,
    peer: str = "127.0.0.1",
    method: str = "GET",
    cookie: str = "",
    **headers: str,
) -> PageRequest:
    named = CIMultiDict((name.replace("_", "-"), value) for name, value in headers.items())
    return PageRequest(peer, method, host, named, cookie)


def door(path: Path, now: list[float] | None = None) -> PageGuard:
    file = path / "token"
    file.write_text(TOKEN + "\n")
    return PageGuard(AccessKind.TOKEN, PageToken(file), clock=lambda: now[0] if now else 1000.0)


def test_a_token_lets_in_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    at = door(tmp_path)
    assert at.check(request("any.example.com"))[0] is AccessVerdict.SIGN_IN
    assert at.check(request(Authorization=f"Bearer {TOKEN}"))[0] is AccessVerdict.ALLOW
    assert at.check(request(Authorization=f"Bearer {TOKEN}x"))[0] is AccessVerdict.DENY
    assert at.check(request(Authorization="Basic abc"))[0] is AccessVerdict.SIGN_IN


def test_a_sign_in_ends_by_time_and_with_its_token(tmp_path: Path) -> None:
    now = [1000.0]
    at = door(tmp_path, now)
    cookie = at.cookie()
    assert at.check(request(cookie=cookie))[0] is AccessVerdict.ALLOW
    until, _, mac = cookie.partition(".")
    assert at.check(request(cookie=f"{int(until) + 1}.{mac}"))[0] is AccessVerdict.SIGN_IN
    assert TOKEN not in cookie
    now[0] += access.STAYS + 1
    assert at.check(request(cookie=cookie))[0] is AccessVerdict.SIGN_IN
    now[0] = 1000.0
    (tmp_path / "token").write_text("another token, and longer")
    assert at.check(request(cookie=cookie))[0] is AccessVerdict.SIGN_IN


@pytest.mark.parametrize("content", [None, "", "short"])
def test_a_token_that_is_missing_or_can_be_guessed_is_refused_at_the_start(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError, match=r"listen\.page\.tokenFile"):
        routes.routes(fleets.Show(), PageGuard(AccessKind.TOKEN, PageToken(file)))


@pytest.mark.parametrize(
    ("peer", "headers", "verdict"),
    [
        ("10.1.2.3", {"X_Forwarded_User": "dana"}, AccessVerdict.ALLOW),
        ("::ffff:10.1.2.3", {"X_Forwarded_User": "dana"}, AccessVerdict.ALLOW),
        ("10.1.2.3", {}, AccessVerdict.DENY),
        ("10.1.2.3", {"X_Forwarded_User": " "}, AccessVerdict.DENY),
        ("192.168.0.1", {"X_Forwarded_User": "dana"}, AccessVerdict.DENY),
        ("", {"X_Forwarded_User": "dana"}, AccessVerdict.DENY),
    ],
)
def test_a_header_is_believed_from_trusted_proxies_only(
    peer: str, headers: Mapping[str, str], verdict: AccessVerdict
) -> None:
    at = PageGuard(AccessKind.PROXY, trusted=access.networks(("10.0.0.0/8",)))
    assert at.check(request(peer=peer, **headers))[0] is verdict


@pytest.mark.parametrize(
    ("origin", "verdict"),
    [
        ({"Origin": f"http://{ADDRESS}"}, AccessVerdict.ALLOW),
        ({"Origin": "http://evil.example.com"}, AccessVerdict.DENY),
        ({"Origin": "null"}, AccessVerdict.DENY),
        ({}, AccessVerdict.DENY),
    ],
)
def test_what_is_not_a_get_comes_from_the_page_itself(
    origin: Mapping[str, str], verdict: AccessVerdict
) -> None:
    assert PageGuard().check(request(method="POST", **origin))[0] is verdict


@pytest.mark.parametrize(
    ("address", "settings", "access"),
    [
        ("127.0.0.1:8080", PageSettings(None), "open"),
        ("[::1]:8080", PageSettings(None), "open"),
        ("localhost:0", PageSettings(None, token_file="t"), "token"),
        ("0.0.0.0:8080", PageSettings(None), None),
        ("0.0.0.0:8080", PageSettings(True, token_file="t"), "token"),
        (":8080", PageSettings(True, "proxy", trusted_proxies=("10.0.0.0/8",)), "proxy"),
        ("127.0.0.1:8080", PageSettings(False), None),
    ],
)
def test_where_a_page_is_served_and_to_whom(
    address: str, settings: PageSettings, access: str | None
) -> None:
    found = settings.served_at(address)
    assert (found.access if found else None) == access


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"access": "open"}, "open to every host"),
        ({}, "tokenFile is required"),
        ({"access": "proxy"}, "trustedProxies is required"),
    ],
)
def test_a_page_that_would_be_open_to_all_is_refused(
    document: Mapping[str, str], words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        decode(PageSettings, document).served_at(":8080")


def test_an_invalid_network_is_refused() -> None:
    with pytest.raises(SettingsError, match="trustedProxies"):
        decode(PageSettings, {"trustedProxies": ["10.0.0.0/99"]})


async def _with_client(at: PageGuard, show: fleets.Show, talk: Talk) -> None:
    app = Application()
    app.add_routes(routes.routes(show, at))
    async with TestClient(TestServer(app), cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
        await talk(client)


def test_signing_in_and_out(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        home = str(client.make_url("/")).rstrip("/")
        first = await client.get("/agents/logging/fluent-bit", allow_redirects=False)
        assert (first.status, first.headers["Location"]) == (303, "../../login")
        assert (await client.get("/live?of=")).status == 401
        wrong = await client.post("/login", data={"token": "wrong"}, headers={"Origin": home})
        assert wrong.status == 401
        assert "The token is wrong." in await wrong.text()
        assert (await client.post("/login", data={"token": TOKEN})).status == 403
        assert (
            await client.post("/login", data=b"x" * 5000, headers={"Origin": home})
        ).status == 413
        right = await client.post(
            "/login", data={"token": TOKEN}, headers={"Origin": home}, allow_redirects=False
        )
        cookie = right.headers["Set-Cookie"]
        assert right.status == 303
        assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/"))
        page = await client.get("/agents/logging/fluent-bit")
        assert page.status == 200
        assert "Sign out" in await page.text()
        assert (
            await client.post("/logout", headers={"Origin": "http://evil.example.com"})
        ).status == 403
        await client.post("/logout", headers={"Origin": home})
        assert (await client.get("/", allow_redirects=False)).status == 303

    asyncio.run(_with_client(door(tmp_path), fleets.story(), talk))


def test_every_answer_has_the_strict_headers(tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        for path in (
            "/",
            "/agents/logging/fluent-bit",
            "/agents/x/y",
            "/nodes",
            "/events",
            "/" + rendering.PATHS["css"],
        ):
            answer = await client.get(path)
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; ")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            kept = "immutable" if path.endswith("css") else "no-store"
            assert kept in answer.headers["Cache-Control"]
            text = await answer.text()
            assert " style=" not in text
            assert " onclick=" not in text
            assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")

    asyncio.run(_with_client(PageGuard(), fleets.story(), talk))


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/agents/logging/none", 404),
        ("/nodes/none", 404),
        ("/commits/none", 404),
        ("/commits/configmap/logging/x@7", 404),
        ("/live?of=nowhere", 404),
        ("/live?of=../../etc", 404),
        ("/?sort=nonsense&down=9&q=%00%ff", 200),
        ("/nodes?first=-1", 200),
        ("/nodes?first=999999", 200),
        ("/nodes?first=" + "9" * 5000, 200),
        ("/agents/logging/fluent-bit/nodes?reason=none", 200),
    ],
)
def test_odd_questions_get_plain_answers(path: str, status: int) -> None:
    async def talk(client: Client) -> None:
        assert (await client.get(path)).status == status

    asyncio.run(_with_client(PageGuard(), fleets.story(20), talk))


def test_the_streams_of_one_address_leave_connections_for_pages() -> None:
    async def talk(client: Client) -> None:
        requests = [client.get("/live?of=") for _ in range(routes.STREAMS_PER_PEER + 10)]
        streams = await asyncio.gather(*requests)
        statuses = sorted(stream.status for stream in streams)
        assert statuses == [200] * routes.STREAMS_PER_PEER + [503] * 10
        assert (await client.get("/")).status == 200
        assert routes.STREAMS < connections.CONNECTIONS
        for stream in streams:
            stream.close()
        # Long before the next write to the streams that were left.
        async with asyncio.timeout(routes.BEAT / 2):
            while (again := await client.get("/live?of=")).status != 200:
                again.close()
        again.close()

    asyncio.run(_with_client(PageGuard(), fleets.story(), talk))


async def test_a_page_changes_only_by_version() -> None:
    """Fifty people who look at the same page cost one drawing."""
    show = fleets.story(20)
    book = Book(show)
    one = await book.page("agents/logging/fluent-bit", {})
    assert await book.page("agents/logging/fluent-bit", {}) is one
    show.version += 1
    assert await book.page("agents/logging/fluent-bit", {}) is not one


class SlowShow(fleets.Show):
    """A view of a large cluster, whose pages take time."""

    async def commits(self, ids: Sequence[str]) -> Mapping[str, CommitInfo]:
        await asyncio.sleep(0.1)
        return await super().commits(ids)


async def test_pages_take_at_most_half_of_the_time() -> None:
    """Each filter is a page of its own, so that one viewer can request any number."""
    book, clock = Book(SlowShow(**vars(fleets.story(20)))), asyncio.get_running_loop().time
    path, began = "agents/logging/fluent-bit", clock()
    first = await book.page(path, {})
    seconds = clock() - began
    assert seconds > 0
    await asyncio.gather(*(book.page(path, {"q": str(number)}) for number in range(9)))
    assert clock() - began == pytest.approx(10 * seconds + 9 * seconds)
    assert await book.page(path, {}) is first
    assert clock() - began == pytest.approx(19 * seconds)


async def test_links_lead_home_from_every_depth() -> None:
    """The page may be below a path of a proxy, so nothing on it begins with a slash."""
    book = Book(fleets.story(20))
    for path in (
        "",
        "nodes",
        "agents/logging/fluent-bit",
        "agents/logging/fluent-bit/nodes",
        f"commits/{fleets.NEW}",
    ):
        html = (await book.page(path, {})).html.decode()
        found = re.findall(r'(?:href|src|action|data-live)="([^"]*)"', html)
        assert found
        assert not [link for link in found if link.startswith("/")]
        assert "../" * path.count("/") + rendering.PATHS["css"] in found


@pytest.mark.slow
async def test_a_map_of_5000_nodes_is_small() -> None:
    drawn = await Book(fleets.story(5000)).page("agents/logging/fluent-bit", {})
    assert len(drawn.html) < 300_000
    assert len(drawn.small) < 60_000


@pytest.mark.parametrize("token", ["\udcff\udcfe", "\udcff.\udcff", "9999999999.\udcff", "ü"])
def test_bytes_that_are_not_utf_8_are_a_wrong_token(tmp_path: Path, token: str) -> None:
    at = door(tmp_path)
    assert at.check(request(Authorization=f"Bearer {token}"))[0] is AccessVerdict.DENY
    assert at.check(request(cookie=token))[0] is AccessVerdict.SIGN_IN


@pytest.mark.parametrize(
    "header", [b"Authorization: Bearer \xff\xfe", b"Cookie: gitops-ds-page=9999999999.\xff\xfe"]
)
def test_bytes_that_are_not_utf_8_are_answered_with_the_pages_headers(
    tmp_path: Path, header: bytes
) -> None:
    async def talk(client: Client) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header + b"\r\n\r\n")
        answer = await reader.read()
        writer.close()
        assert answer.split()[1] in (b"303", b"403", b"400", b"401")
        assert b"Content-Security-Policy: default-src 'none'" in answer

    asyncio.run(_with_client(door(tmp_path), fleets.story(), talk))
