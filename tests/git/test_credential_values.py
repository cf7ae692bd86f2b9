"""Credentials that change, that are for one place only, that a GitHub App gets; against real git
servers over https.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core import errors
from gitops_ds.core.objects import SECRET
from gitops_ds.service.git import git_auth
from gitops_ds.service.settings.base import decode
from gitops_ds.service.settings.repository import CredentialSettings, RepositorySettings
from gitops_ds.source.git import address
from gitops_ds.source.git.credentials import credential_scope, github_app
from gitops_ds.source.git.credentials.credential_values import Bearer, Credentials, Password, SshKey
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.revision import Branch
from gitops_ds.testing import simulator
from tests import gitservers
from tests.gitservers import HttpServer
from tests.http_servers import Reply, ServerThread, http_handler

MAIN = Branch("main")


def files(server: HttpServer, directory: Path, password: str) -> dict[str, str]:
    """Settings of credentials in files."""
    (directory / "ca").write_bytes(server.authority)
    (directory / "token").write_text(password + "\n")
    return {
        "tokenFile": str(directory / "token"),
        "caFile": str(directory / "ca"),
        "username": server.user,
    }


def keyring(
    settings: Mapping[str, Any], secrets: git_auth.ClusterSecrets | None = None
) -> git_auth.Keyring:
    decoded = decode(RepositorySettings, settings)
    return git_auth.Keyring(decoded, address.parse(decoded.url), secrets)


def test_a_changed_token_file_is_used_at_the_next_fetch_also_after_a_symlink_swap(
    http_server: HttpServer, tmp_path: Path
) -> None:
    http_server.password = "first"
    commit = http_server.repository("a").commit({"x.yaml": "a: 1\n"})
    for number, password in enumerate(("first", "second")):
        (tmp_path / f"..{number}").mkdir()
        files(http_server, tmp_path / f"..{number}", password)
    data = tmp_path / "..data"
    data.symlink_to("..0")
    settings = {"tokenFile": f"{data}/token", "caFile": f"{data}/ca", "username": http_server.user}
    own = keyring({"url": f"{http_server.url}/a", "credentials": settings})

    async def run() -> None:
        async with Repository(own.where, tmp_path / "cache", own) as repository:
            assert await repository.tip(MAIN) == commit
            http_server.password = "second"
            with pytest.raises(errors.SourceDenied, match="401"):
                await repository.tip(MAIN)
            (tmp_path / "..new").symlink_to("..1")
            (tmp_path / "..new").rename(data)
            assert await repository.tip(MAIN) == commit
            assert all(
                b"first" not in file.read_bytes()
                for file in (tmp_path / "cache").rglob("*")
                if file.is_file()
            )

    asyncio.run(run())


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("data", "fits"),
    [
        ({"username": "bot", "password": "pw"}, Password("pw", "bot")),
        ({"password": "pw\n"}, Password("pw", "git")),
        ({"bearerToken": "b", "password": "pw"}, Bearer("b")),
        ({"identity": "key", "known_hosts": "hosts"}, SshKey(b"key", b"hosts")),
        ({}, None),
    ],
)
def test_a_secret_has_the_keys_that_flux_uses(data: Mapping[str, str], fits: object) -> None:
    parts = {name: value.encode() for name, value in data.items()}
    assert git_auth.login_of(parts, address.parse("https://git.example.com/a")) == fits


def test_ssh_uses_the_identity_and_https_the_password() -> None:
    both = {"identity": b"key", "known_hosts": b"hosts", "password": b"pw"}
    assert isinstance(git_auth.login_of(both, address.parse("git@git.example.com:a")), SshKey)
    assert isinstance(git_auth.login_of(both, address.parse("https://git.example.com/a")), Password)


def secret(server: HttpServer, password: str) -> dict[str, Any]:
    data = {
        "username": server.user.encode(),
        "password": password.encode(),
        "ca.crt": server.authority,
    }
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "git", "namespace": "default"},
        "data": encoded,
    }


@pytest.mark.slow
def test_a_secret_is_read_seldom_and_at_once_when_the_server_refuses(
    http_server: HttpServer, tmp_path: Path
) -> None:
    http_server.password = "first"
    commit = http_server.repository("a").commit({"x.yaml": "a: 1\n"})
    now = [0.0]

    async def run() -> None:
        async with simulator.SimulatedCluster() as cluster:
            client = cluster.client()
            await cluster.create(SECRET, secret(http_server, "first"))
            own = keyring(
                {"url": f"{http_server.url}/a", "credentials": {"secretRef": {"name": "git"}}},
                git_auth.ClusterSecrets(client, "default", lambda: now[0]),
            )
            async with Repository(own.where, tmp_path / "cache", own) as repository:
                for _ in range(5):
                    assert await repository.tip(MAIN) == commit
                assert client.count.of("get") == 1
                now[0] += 31
                await repository.tip(MAIN)
                assert client.count.of("get") == 2
                http_server.password = "second"
                await cluster.patch(SECRET, "default", "git", secret(http_server, "second"))
                assert await repository.tip(MAIN) == commit
                assert client.count.of("get") == 3
                await cluster.delete(SECRET, "default", "git")
                now[0] += 31
                with pytest.raises(
                    errors.SettingsError, match="the Secret default/git does not exist"
                ):
                    await repository.tip(MAIN)

    asyncio.run(run())


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("match", "url", "goes"),
    [
        ("https://git.example.com", "https://git.example.com/a/b", True),
        ("https://git.example.com/", "https://GIT.example.com:443/a", True),
        ("https://git.example.com/a", "https://git.example.com/a", True),
        ("https://git.example.com/a/", "https://git.example.com/a/b.git", True),
        ("https://git.example.com/a", "https://git.example.com/ab", False),
        ("https://git.example.com/a", "https://git.example.com/A/b", False),
        ("https://git.example.com/a", "https://git.example.com/a/../b", False),
        ("https://git.example.com/a", "https://git.example.com/a/%2e%2e/b", False),
        ("https://git.example.com/a", "https://git.example.com//a/b", False),
        ("https://git.example.com", "https://git.example.com.evil.org/a", False),
        ("https://git.example.com", "https://evil.org/git.example.com", False),
        ("https://git.example.com", "https://git.example.com@evil.org/a", False),
        ("https://git.example.com", "https://sub.git.example.com/a", False),
        ("https://git.example.com", "https://git.example.com:8443/a", False),
        ("https://git.example.com:8443", "https://git.example.com:8443/a", True),
        ("https://git.example.com", "ssh://git@git.example.com/a", False),
        ("ssh://git.example.com", "ssh://git@git.example.com/a", True),
        ("ssh://git.example.com/a", "git@git.example.com:a/b.git", True),
        ("ssh://git.example.com:22", "git@git.example.com:a/b.git", True),
        ("ssh://git.example.com", "https://git.example.com/a", False),
        ("ssh://evil.org", "git@git.example.com:a@evil.org:b", False),
        ("ssh://git.example.com", "git@git.example.com:a@evil.org:b", True),
    ],
)
def test_credentials_go_to_the_place_that_they_are_for_and_nowhere_else(
    match: str, url: str, goes: bool
) -> None:
    entry = CredentialSettings(match=match, token_file="x")
    assert git_auth.chosen([entry], address.parse(url)) == (entry if goes else None)


def test_the_longest_matching_path_is_used_and_none_without_a_match() -> None:
    entries = [
        CredentialSettings(match=f"https://git.example.com{path}") for path in ("", "/a/b", "/a")
    ]
    for url, expected in (("/x", 0), ("/a/b/c", 1), ("/a/c", 2)):
        assert (
            git_auth.chosen(entries, address.parse(f"https://git.example.com{url}"))
            is entries[expected]
        )
    assert git_auth.chosen(entries, address.parse("https://other.example.com/a")) is None


@pytest.mark.sampled
@pytest.mark.parametrize(
    "match",
    ["git.example.com", "https://", "http://git.example.com", "https://*.example.com", "https://bot:pw@git.example.com",
     "https://git.example.com/a/../b", "https://git.example.com?x=1", "https://[", "file:///a", "https://git.example.com:x"],
)  # fmt: skip
def test_an_ambiguous_match_is_rejected_without_its_password(match: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        credential_scope.parse(match)
    assert "pw" not in str(caught.value)


HOSTS = st.sampled_from(
    [
        "git.example.com",
        "example.com",
        "git.example.com.evil.org",
        "evil.org",
        "xn--gt-example.com",
        "127.0.0.1",
        "[::1]",
    ]
)
PATHS = st.lists(
    st.sampled_from(["a", "b", "ab", "..", ".", "%2e%2e", "", "a.git", "git.example.com", "@"]),
    max_size=4,
).map("/".join)
PORTS = st.sampled_from(["", ":443", ":22", ":8443"])
URLS = st.builds(
    "{}://{}{}{}/{}".format,
    st.sampled_from(["https", "ssh"]),
    st.sampled_from(["", "git@"]),
    HOSTS,
    PORTS,
    PATHS,
)

SCP = st.builds(
    "{}{}:{}".format,
    st.sampled_from(["", "git@"]),
    HOSTS,
    PATHS | PATHS.map("a@evil.org:{}".format),
)


@given(
    st.lists(
        st.builds("{}://{}{}/{}".format, st.sampled_from(["https", "ssh"]), HOSTS, PORTS, PATHS),
        max_size=4,
    ),
    URLS | SCP,
)
def test_credentials_are_sent_only_to_their_own_host(given_for: list[str], url: str) -> None:
    entries = []
    for text in given_for:
        with contextlib.suppress(errors.UsageError):
            credential_scope.parse(text)
            entries.append(CredentialSettings(match=text))
    try:
        where = address.parse(url)
    except errors.GitopsError:
        return
    credentials = git_auth.chosen(entries, where)
    if credentials is None:
        return
    scheme, _, rest = credentials.match.partition("://")
    host, _, path = rest.partition("/")
    if "://" in url:
        authority, _, below = url.partition("://")[2].partition("/")
    else:
        authority, _, below = url.partition(":")
    at = authority.rpartition("@")[2]
    default = {"https": ":443", "ssh": ":22"}[scheme]
    assert where.scheme.value == scheme
    assert at.removesuffix(default) == host.removesuffix(default)
    prefix = path.rstrip("/")
    assert not prefix or f"{below}/".startswith(f"{prefix}/")
    assert not prefix or ".." not in below.split("/")


def test_a_list_needs_a_place_for_each_and_a_proxy_no_user() -> None:
    with pytest.raises(errors.SettingsError, match="needs match"):
        decode(
            RepositorySettings,
            {"url": "https://git.example.com/a", "credentials": [{"tokenFile": "x"}]},
        )
    for proxy in ("http://bot:pw@proxy:3128", "socks5://proxy:1", "proxy"):
        with pytest.raises(errors.SettingsError, match=r"repository\.proxy must be") as caught:
            decode(RepositorySettings, {"url": "https://git.example.com/a", "proxy": proxy})
        assert "pw" not in str(caught.value)
    with pytest.raises(errors.SettingsError, match="for https"):
        decode(RepositorySettings, {"url": "git@git.example.com:a", "proxy": "http://proxy:3128"})


def test_credentials_for_another_place_stay_at_home() -> None:
    sets = [{"match": "https://elsewhere.example.com", "tokenFile": "/x"}]
    own = keyring({"url": "https://git.example.com/a", "credentials": sets})
    assert asyncio.run(own(False)) == Credentials()


@pytest.mark.sampled
@pytest.mark.parametrize("login", [Password("pw", "bot"), Bearer("pw")])
def test_a_redirect_carries_no_credentials_to_another_host(
    http_server: HttpServer, tmp_path: Path, login: Password | Bearer
) -> None:
    seen: list[str] = []
    with gitservers.http_git_server(tmp_path / "other") as other:
        other.allows = lambda header: bool(seen.append(header))  # type: ignore[method-assign, func-returns-value]
        http_server.redirect = other.url

        async def run() -> None:
            where = address.parse(f"{http_server.url}/a")
            async with Repository(
                where, tmp_path / "cache", Credentials(login, http_server.authority)
            ) as repository:
                await repository.tip(MAIN)

        with pytest.raises(errors.SourceDenied, match="redirects"):
            asyncio.run(run())
        assert (seen, other.requests) == ([], [])


class _Proxy(socketserver.StreamRequestHandler):
    """CONNECT and nothing else."""

    def handle(self) -> None:
        request_line = self.rfile.readline().decode().split()
        while self.rfile.readline().strip():
            pass
        self.server.requests.append(request_line)  # type: ignore[attr-defined]
        host, _, port = request_line[1].rpartition(":")
        with socket.create_connection((host, int(port))) as there:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_pump, args=(there, self.connection))
            back.start()
            _pump(self.connection, there)
            back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxy() -> Iterator[tuple[str, list[list[str]]]]:
    """The address of a proxy, and the request lines it received."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Proxy)
    server.daemon_threads = True
    server.requests = []  # type: ignore[attr-defined]
    with ServerThread(server):
        yield f"http://127.0.0.1:{server.server_address[1]}", server.requests  # type: ignore[attr-defined]


def test_git_and_the_tokens_of_an_app_go_through_the_proxy(
    http_server: HttpServer, github: GitHub, tmp_path: Path
) -> None:
    commit = http_server.repository("a").commit({"x.yaml": "a: 1\n"})
    http_server.user, http_server.password = "x-access-token", "ghs_1"
    with proxy() as (url, requests):
        settings = {
            "url": f"{http_server.url}/a",
            "proxy": url,
            "credentials": github.credentials(tmp_path, http_server),
        }
        own = keyring(settings)

        async def run() -> str:
            async with Repository(own.where, tmp_path / "cache", own) as repository:
                return await repository.tip(MAIN)

        assert asyncio.run(run()) == commit
        ports = {words[1].rpartition(":")[2] for words in requests if words[0] == "CONNECT"}
        assert ports == {http_server.url.rpartition(":")[2], github.url.rpartition(":")[2]}


@dataclass
class GitHub:
    """The API of GitHub as far as a token of an installation needs it; the JWT is checked with
    openssl, not with our library.
    """

    url: str
    key: Path
    ahead: float = 0.0
    status: int = 0
    redirect: str = ""
    replaced: Any = None  # parts of the answer, or all of it
    requests: list[Mapping[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def credentials(self, directory: Path, server: HttpServer) -> dict[str, Any]:
        (directory / "ca").write_bytes(server.authority)
        app = {
            "appID": 12345,
            "installationID": "678",
            "privateKeyFile": str(self.key),
            "apiURL": f"{self.url}/api/v3",
        }
        return {"githubApp": app, "caFile": str(directory / "ca")}

    def now(self) -> float:
        """Seconds since 1970, some ahead."""
        return time.time() + self.ahead

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        if self.status:
            return self.status, {"message": "Access denied"}
        if path != "/api/v3/app/installations/678/access_tokens":
            return 404, {"message": "Not Found"}
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or not self.is_ours(token):
            return 401, {"message": "A JSON web token could not be decoded"}
        if headers.get("Accept") != "application/vnd.github+json" or "User-Agent" not in headers:
            return 415, {"message": "Unsupported"}
        self.requests.append(json.loads(body))
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now() + 3600))
        whole = {
            "token": f"ghs_{len(self.requests)}",
            "expires_at": ends,
            "permissions": {"contents": "read"},
        }
        if isinstance(self.replaced, dict):
            return 201, {**whole, **self.replaced}
        return 201, whole if self.replaced is None else self.replaced

    def is_ours(self, token: str) -> bool:
        head, claims, signature = token.split(".")
        claimed, algorithm = json.loads(_decoded(claims)), json.loads(_decoded(head))["alg"]
        (self.key.parent / "signature").write_bytes(_decoded(signature))
        words = (
            "openssl",
            "dgst",
            "-sha256",
            "-verify",
            f"{self.key}.pub",
            "-signature",
            str(self.key.parent / "signature"),
        )
        signed = (
            subprocess.run(
                words, input=f"{head}.{claims}".encode(), capture_output=True, check=False
            ).returncode
            == 0
        )
        now = self.now()
        fresh = claimed["iat"] <= now < claimed["exp"] <= now + 600
        return signed and fresh and algorithm == "RS256" and str(claimed["iss"]) == "12345"


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@pytest.fixture(scope="module")
def app_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The private key of an app, beside its public one: a key takes a tenth of a second of CPU."""
    key = tmp_path_factory.mktemp("app") / "app.pem"
    subprocess.run(("openssl", "genrsa", "-out", str(key), "2048"), capture_output=True, check=True)
    subprocess.run(
        ("openssl", "rsa", "-in", str(key), "-pubout", "-out", f"{key}.pub"),
        capture_output=True,
        check=True,
    )
    return key


@pytest.fixture
def github(app_key: Path, tmp_path: Path) -> Iterator[GitHub]:
    key = shutil.copytree(app_key.parent, tmp_path / "github") / app_key.name

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> Reply:
        if owner.redirect:
            return Reply(b"", 307, {"Location": owner.redirect + request.path})
        status, found = owner.answer(request.path, request.headers, body)  # type: ignore[arg-type]
        return Reply(json.dumps(found).encode(), status)

    server = gitservers._TlsServer(("127.0.0.1", 0), http_handler(answer))
    server.context = gitservers.tls_context()
    owner = GitHub(f"https://localhost:{server.server_port}", key)
    with ServerThread(server):
        yield owner


def app_of(
    github: GitHub, server: HttpServer, tmp_path: Path, now: Callable[[], float]
) -> tuple[github_app.Tokens, github_app.App, Credentials]:
    where = address.parse(f"{server.url}/org/agents.git")
    app = github_app.App("12345", "678", github.key.read_bytes(), f"{github.url}/api/v3")
    return github_app.Tokens(where, now), app, Credentials(None, server.authority)


def test_a_github_app_uses_a_token_of_its_repository_and_renews_it_before_it_expires(
    http_server: HttpServer, github: GitHub, tmp_path: Path
) -> None:
    async def run() -> None:
        tokens, app, own = app_of(github, http_server, tmp_path, github.now)
        assert await tokens.login(app, own, refused=False) == Password("ghs_1", "x-access-token")
        assert github.requests == [{"repositories": ["agents"]}]
        five = await asyncio.gather(*(tokens.login(app, own, refused=False) for _ in range(5)))
        assert {login.password for login in five} == {"ghs_1"}
        github.ahead = 3600 - github_app.EARLY - 60
        assert (await tokens.login(app, own, refused=False)).password == "ghs_1"
        github.ahead += 120
        assert (await tokens.login(app, own, refused=False)).password == "ghs_2"
        assert (await tokens.login(app, own, refused=True)).password == "ghs_3"

    asyncio.run(run())


def test_a_refused_token_is_replaced_in_the_same_fetch(
    http_server: HttpServer, github: GitHub, tmp_path: Path
) -> None:
    commit = http_server.repository("a").commit({"x.yaml": "a: 1\n"})
    http_server.user, http_server.password = "x-access-token", "ghs_2"
    own = keyring(
        {"url": f"{http_server.url}/a", "credentials": github.credentials(tmp_path, http_server)}
    )

    async def run() -> str:
        async with Repository(own.where, tmp_path / "cache", own) as repository:
            return await repository.tip(MAIN)

    assert asyncio.run(run()) == commit
    assert len(github.requests) == 2


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, errors.SourceDenied, "the key, the app's id or the local clock is wrong"),
        (403, errors.SourceDenied, "suspended"),
        (404, errors.SourceDenied, "installation 678 not found"),
        (422, errors.SourceDenied, "no access to this repository"),
        (429, errors.SourceUnreachable, "try again"),
        (502, errors.SourceUnreachable, "try again"),
    ],
)
def test_each_refusal_of_a_token_has_a_remedy(
    http_server: HttpServer,
    github: GitHub,
    tmp_path: Path,
    status: int,
    kind: type[errors.SourceError],
    words: str,
) -> None:
    github.status = status
    tokens, app, own = app_of(github, http_server, tmp_path, time.time)
    with pytest.raises(kind, match=words):
        asyncio.run(tokens.login(app, own, refused=False))


@pytest.mark.parametrize(
    "replaced",
    [
        {"token": ["ghs_1"]},
        {"token": "ghs_1\nhost=elsewhere"},
        {"token": " "},
        {"expires_at": 5},
        {"expires_at": "0001-01-01T00:00:00"},
        "hello",
        json.loads("[" * 900 + "]" * 900),
    ],
)
def test_an_answer_without_a_token_is_an_error_of_the_api(
    http_server: HttpServer, github: GitHub, tmp_path: Path, replaced: Any
) -> None:
    github.replaced = replaced
    tokens, app, own = app_of(github, http_server, tmp_path, time.time)
    with pytest.raises(errors.SourceUnreachable, match="check apiURL"):
        asyncio.run(tokens.login(app, own, refused=False))


def test_a_jwt_of_another_key_is_refused_and_one_without_a_key_never_sent(
    http_server: HttpServer, github: GitHub, tmp_path: Path
) -> None:
    tokens, app, own = app_of(github, http_server, tmp_path, time.time)
    other = tmp_path / "other.pem"
    subprocess.run(
        ("openssl", "genrsa", "-out", str(other), "2048"), capture_output=True, check=True
    )
    with pytest.raises(
        errors.SourceDenied, match="the key, the app's id or the local clock is wrong"
    ):
        asyncio.run(
            tokens.login(
                github_app.App(app.id, app.installation, other.read_bytes(), app.api),
                own,
                refused=False,
            )
        )
    with pytest.raises(errors.UsageError, match="can't be read"):
        asyncio.run(
            tokens.login(
                github_app.App(app.id, app.installation, b"no key", app.api), own, refused=False
            )
        )
    assert github.requests == []


def test_a_redirect_of_the_api_never_receives_the_jwt(
    http_server: HttpServer, github: GitHub, tmp_path: Path
) -> None:
    github.redirect = http_server.url
    tokens, app, own = app_of(github, http_server, tmp_path, time.time)
    with pytest.raises(errors.SourceDenied, match="check apiURL"):
        asyncio.run(tokens.login(app, own, refused=False))
    assert http_server.requests == []


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("url", "api"),
    [
        ("https://github.com/org/a", "https://api.github.com"),
        ("https://tenant.ghe.com/org/a", "https://api.tenant.ghe.com"),
        ("https://git.example.com:8443/org/a", "https://git.example.com:8443/api/v3"),
    ],
)
def test_the_api_is_beside_the_repository(url: str, api: str) -> None:
    assert github_app.api_of(address.parse(url)) == api


def test_an_app_is_rejected_for_ssh() -> None:
    with pytest.raises(errors.UsageError, match="requires https"):
        github_app.api_of(address.parse("git@github.com:org/a"))


def test_nothing_that_holds_a_secret_shows_it() -> None:
    login = Password("s3cret")
    app = github_app.App("1", "2", b"s3cret")
    url = address.parse("https://bot:s3cret@git.example.com/a")
    shown = (
        login,
        Bearer("s3cret"),
        SshKey(b"s3cret", b""),
        Credentials(login),
        github_app.Token("s3cret", 0.0),
        app,
        url,
    )
    assert all("s3cret" not in f"{one!r}{one}" for one in shown)
