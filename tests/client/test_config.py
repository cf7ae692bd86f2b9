"""The identity of a client: credentials of kubeconfigs, plugins and pods' accounts, and when they
are read again.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.kube.client import config as client_config
from gitops_ds.kube.client import kubeconfig, rest
from gitops_ds.kube.client.config import ClientConfig
from gitops_ds.kube.client.kubeconfig import KubeconfigEntry
from tests.http_servers import Reply, ServerThread, http_handler

SECRET = "a-secret-that-no-other-user-sees"


@dataclass
class Source:
    """Answers in order, then the last one each time; counts the requests. With a clock."""

    answers: list[KubeconfigEntry | errors.ClusterError]
    now: float = 1000.0
    requests: int = 0

    def ask(self) -> KubeconfigEntry:
        self.requests += 1
        answer = self.answers[min(self.requests, len(self.answers)) - 1]
        if isinstance(answer, errors.ClusterError):
            raise answer
        return answer

    def access(self) -> ClientConfig:
        return ClientConfig("me", None, self.ask(), self.ask, lambda: self.now)


def header(at: ClientConfig, refuse: str | None = None) -> str | None:
    return asyncio.run(at.authorization(refuse=refuse))


@pytest.mark.sampled
@pytest.mark.parametrize("refuse", [None, "Bearer 1"])
def test_a_static_credential_is_read_once(refuse: str | None) -> None:
    source = Source([KubeconfigEntry("h", "Bearer 1")])
    at = source.access()
    for _ in range(3):
        source.now += 1000
        assert header(at, refuse) == "Bearer 1"
    assert source.requests == 1


def test_a_token_that_expires_is_renewed_shortly_before_and_not_earlier() -> None:
    source = Source(
        [
            KubeconfigEntry("h", "Bearer 1", 2000, renewable=True),
            KubeconfigEntry("h", "Bearer 2", 3000, renewable=True),
        ]
    )
    at = source.access()
    source.now = 2000 - client_config.RENEWED_SECONDS_BEFORE_END
    assert (header(at), source.requests) == ("Bearer 1", 1)
    source.now += 1
    assert (header(at), source.requests) == ("Bearer 2", 2)
    source.now = 2500
    assert (header(at), source.requests) == ("Bearer 2", 2)


def test_a_plugin_that_keeps_returning_an_expired_token_does_not_run_for_every_request() -> None:
    source = Source([KubeconfigEntry("h", "Bearer 1", 1001, renewable=True)])
    at = source.access()
    assert [header(at) for _ in range(5)] == ["Bearer 1"] * 5
    assert source.requests == 2
    source.now += client_config.TOKEN_KEPT_SECONDS
    header(at)
    assert source.requests == 3


def test_a_token_without_an_expiry_is_renewed_when_refused_and_then_kept_for_seconds() -> None:
    source = Source([KubeconfigEntry("h", f"Bearer {n}", renewable=True) for n in (1, 2, 3)])
    at = source.access()
    source.now += 100_000
    assert header(at) == "Bearer 1"
    assert header(at, "Bearer 1") == "Bearer 2"
    assert header(at, "Bearer 1") == "Bearer 2"  # another request renewed it already
    assert header(at, "Bearer 2") == "Bearer 2"
    source.now += client_config.TOKEN_KEPT_SECONDS
    assert header(at, "Bearer 1") == "Bearer 2"  # a late one: that token is long gone
    assert header(at, "Bearer 2") == "Bearer 3"


def test_a_clock_that_was_put_back_does_not_stop_the_asking() -> None:
    source = Source([KubeconfigEntry("h", f"Bearer {n}", renewable=True) for n in (1, 2, 3)])
    at = source.access()
    assert header(at, "Bearer 1") == "Bearer 2"
    source.now -= 500
    assert header(at, "Bearer 2") == "Bearer 3"


def test_many_callers_with_one_refused_token_ask_once() -> None:
    source = Source([KubeconfigEntry("h", f"Bearer {n}", renewable=True) for n in (1, 2, 3)])
    at = source.access()

    async def all_at_once() -> list[str | None]:
        return await asyncio.gather(*(at.authorization(refuse="Bearer 1") for _ in range(20)))

    assert asyncio.run(all_at_once()) == ["Bearer 2"] * 20
    assert source.requests == 2


def test_a_plugin_that_fails_is_reported_when_its_last_token_expires_and_not_before() -> None:
    source = Source(
        [
            KubeconfigEntry("h", "Bearer 1", 2000, renewable=True),
            errors.ClusterError("me: no token today"),
        ]
    )
    at = source.access()
    source.now = 1999
    assert header(at) == "Bearer 1"
    source.now = 2010
    with pytest.raises(errors.ClusterError, match="no token today"):
        header(at)


def test_a_token_file_is_read_again_each_ten_seconds_without_asking(tmp_path: Path) -> None:
    file = tmp_path / "token"
    source = Source([KubeconfigEntry("h", "Bearer 1", token_file=str(file))])
    at = source.access()
    file.write_text("2\n")
    assert header(at) == "Bearer 2"
    file.write_text("3\n")
    assert header(at) == "Bearer 2"
    source.now += client_config.TOKEN_KEPT_SECONDS
    assert header(at) == "Bearer 3"
    for broken in (b"", b"\xff"):
        file.write_bytes(broken)
        source.now += client_config.TOKEN_KEPT_SECONDS
        assert header(at) == "Bearer 3"
    file.unlink()
    source.now += client_config.TOKEN_KEPT_SECONDS
    assert header(at) == "Bearer 3"
    assert source.requests == 1


# From here on with the real package, in its own process.


def config(
    directory: Path,
    name: str = "kubeconfig",
    *,
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
) -> Path:
    """A kubeconfig whose one context, user and cluster are called as the file."""
    file = directory / name
    file.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [
            {"name": name, "cluster": {"server": f"http://{name}.example:80/", **(cluster or {})}}
        ],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }))  # fmt: skip
    return file


def plugin(directory: Path, script: str) -> dict[str, Any]:
    """A user whose exec plugin is this shell script; it runs in a directory where it may write."""
    file = directory / "plugin"
    file.write_text(f"#!/bin/sh\ncd '{directory}'\n{script}\n")
    file.chmod(0o700)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(file),
            "interactiveMode": "IfAvailable",
        }
    }


def credential(**status: str) -> str:
    return json.dumps(
        {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": status,
        }
    )


USERS: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"token": "t"}, "Bearer t"),
    ({"token": "t", "tokenFile": "token"}, "Bearer t"),
    ({"tokenFile": "token"}, "Bearer from-the-file"),
    ({"username": "me", "password": "p"}, "Basic " + base64.b64encode(b"me:p").decode()),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("user", "expected"), USERS)
def test_every_kind_of_user_has_its_header(
    user: dict[str, Any], expected: str | None, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("from-the-file\n")
    entry = client_config.access(str(config(tmp_path, user=user)), None)
    assert (entry.url, entry.tls, header(entry)) == ("http://kubeconfig.example:80", None, expected)


@pytest.mark.slow
def test_the_token_file_of_a_kubeconfig_is_followed_as_it_changes(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("1\n")
    file = str(config(tmp_path, user={"tokenFile": "token"}))
    assert kubeconfig.of_file(file, None).header == "Bearer 1"
    entry = client_config.access(file, None)
    (tmp_path / "token").write_text("2\n")
    assert header(entry) == "Bearer 2"


def test_a_list_of_files_is_one_kubeconfig_and_a_context_chooses_in_it(tmp_path: Path) -> None:
    one = config(tmp_path, "one", user={"token": "1"})
    two = config(
        tmp_path, "two", user={"token": "2"}, cluster={"proxy-url": "http://proxy.example:3128"}
    )
    files = os.pathsep.join((str(tmp_path / "missing"), str(one), str(two)))
    entry = client_config.access(files, "two")
    assert (entry.url, header(entry), entry.proxy) == (
        "http://two.example:80",
        "Bearer 2",
        "http://proxy.example:3128",
    )
    assert entry.who == f"context two of {files}"
    assert client_config.access(files, "one").url == "http://one.example:80"


def script(text: str, *arguments: str, **environment: str) -> list[Any]:
    """What a Python program printed as JSON lines, run with only this environment."""
    ended = subprocess.run(
        (sys.executable, "-c", text, *arguments),
        env={"PATH": os.defpath, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


OPEN = """
import asyncio, json, sys
from pathlib import Path
from gitops_ds.kube.client import config
found = config.access(None, None, Path(sys.argv[1]))
print(json.dumps([found.who, found.url, found.proxy, asyncio.run(found.authorization())]))
"""


@pytest.mark.slow
def test_the_environment_names_files_and_proxies_as_for_kubectl(tmp_path: Path) -> None:
    one, two = config(tmp_path, "one", user={"token": "1"}), config(tmp_path, "two")
    files = os.pathsep.join((str(one), str(two)))
    away = {"KUBECONFIG": files, "http_proxy": "http://proxy.example:1"}
    assert script(OPEN, "none", **away) == [
        [files, "http://two.example:80", "http://proxy.example:1", None]
    ]
    assert script(OPEN, "none", **away, no_proxy=".example") == [
        [files, "http://two.example:80", None, None]
    ]


def test_without_a_file_it_is_the_kubeconfig_of_the_home_directory(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    config(tmp_path / ".kube", "config", user={"token": "1"})
    assert script(OPEN, "none", HOME=str(tmp_path)) == [
        ["~/.kube/config", "http://config.example:80", None, "Bearer 1"]
    ]


@pytest.mark.system
def test_a_pod_is_its_account_whose_token_changes(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "token").write_text("1")
    (tmp_path / "ca.crt").write_text(authority.text("ca.pem"))
    there = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    changed = (
        "Path(sys.argv[1], "
        "'token').write_text('2')\nprint(json.dumps(asyncio.run(found.authorization())))"
    )
    output = script(
        OPEN.replace("print", "assert found.tls\n" + changed + "\nprint"), str(tmp_path), **there
    )
    assert output == [
        "Bearer 2",
        ["the pod's service account", "https://[fd00::1]:443", None, "Bearer 2"],
    ]


@pytest.mark.slow
def test_a_pod_without_its_certificate_authority_is_reported(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("1")
    caught = "from gitops_ds.core import errors\n"
    caught += "try:\n  config.access(None, None, Path(sys.argv[1]))\n"
    caught += "except errors.ClusterError as error:\n  print(json.dumps(str(error)))"
    there = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    output = script(OPEN.partition("found =")[0] + caught, str(tmp_path), **there)
    assert output == [
        (
            "the pod's service account: Service certification file does not exist.; `kubectl "
            "config view` shows its content"
        )
    ]


def test_a_process_that_opened_a_cluster_never_imported_the_official_package(
    tmp_path: Path,
) -> None:
    text = """
import asyncio, json, sys
from gitops_ds.kube.client import connect
async def main():
    async with connect.reading(connect.Connection(sys.argv[1])) as cluster:
        print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
asyncio.run(main())
"""
    (modules,) = script(text, str(config(tmp_path, user={"token": "t"})))
    assert "aiohttp" in modules
    assert {
        "kubernetes",
        "pydantic",
        "requests",
        "oauthlib",
        "urllib3",
        "charset_normalizer",
    }.isdisjoint(modules)


def test_a_module_in_the_current_directory_is_not_taken_for_the_official_package(
    tmp_path: Path,
) -> None:
    for name in ("kubernetes", "yaml", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken')")
    text = "import os, json\nos.chdir(os.environ['HERE'])\n" + OPEN
    assert (
        script(text, "none", KUBECONFIG=str(config(tmp_path)), HERE=str(tmp_path))[0][1]
        == "http://kubeconfig.example:80"
    )


# Exec plugins.


@pytest.mark.slow
def test_an_exec_plugin_runs_once_at_the_start_and_once_for_many_refused_callers(
    tmp_path: Path,
) -> None:
    answer = (
        credential(token="TOKEN")
        .replace("TOKEN", "t$(wc -l <asked | tr -d ' ')")
        .replace('"', '\\"')
    )
    entry = client_config.access(
        str(config(tmp_path, user=plugin(tmp_path, f'echo >>asked\necho "{answer}"'))), None
    )

    async def callers() -> list[str | None]:
        before = await asyncio.gather(*(entry.authorization() for _ in range(5)))
        return before + await asyncio.gather(
            *(entry.authorization(refuse=before[0]) for _ in range(5))
        )

    assert asyncio.run(callers()) == ["Bearer t1"] * 5 + ["Bearer t2"] * 5
    assert (tmp_path / "asked").read_text() == "\n\n"


def test_the_end_of_a_plugins_token_is_known(tmp_path: Path) -> None:
    printed = credential(token=SECRET, expirationTimestamp="2001-09-09T01:46:40Z")
    entry = kubeconfig.of_file(
        str(config(tmp_path, user=plugin(tmp_path, f"echo '{printed}'"))), None
    )
    assert (entry.expires, entry.renewable) == (1_000_000_000, True)
    assert SECRET not in repr(entry)


FAILING = [
    ("echo the door is closed >&2; exit 3", "exec: process returned 3. the door is closed"),
    ("echo no JSON", "exec: failed to decode process output"),
    ("echo '{}'", "exec: malformed response. missing key 'apiVersion'"),
    (f"echo '{credential()}'", "exec: missing token or clientCertificateData"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("text", "words"), FAILING)
def test_a_plugin_without_output_is_reported_in_a_sentence(
    text: str, words: str, tmp_path: Path
) -> None:
    file = config(tmp_path, user=plugin(tmp_path, text))
    with pytest.raises(errors.ClusterError) as caught:
        client_config.access(str(file), None)
    assert str(caught.value).startswith(f"{file}: its exec plugin returned no credentials: {words}")
    assert "\n" not in str(caught.value)


def test_a_plugin_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    file = config(
        tmp_path,
        user={
            "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}
        },
    )
    with pytest.raises(errors.ClusterError, match="no-such-plugin"):
        client_config.access(str(file), None)


def test_a_plugin_without_a_terminal_is_not_interactive_and_its_standard_error_is_not_a_credential(
    tmp_path: Path,
) -> None:
    text = f"echo \"$KUBERNETES_EXEC_INFO\" >info\necho warning >&2\necho '{credential(token='t')}'"
    assert (
        header(client_config.access(str(config(tmp_path, user=plugin(tmp_path, text))), None))
        == "Bearer t"
    )
    assert json.loads((tmp_path / "info").read_text())["spec"]["interactive"] is False


def test_a_plugin_is_not_interactive_when_only_its_standard_error_is_a_terminal(
    tmp_path: Path,
) -> None:
    text = f"echo \"$KUBERNETES_EXEC_INFO\" >info\necho '{credential(token='t')}'"
    ours, theirs = os.openpty()
    words = client_config.command(["file", str(config(tmp_path, user=plugin(tmp_path, text)))])
    subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, check=True
    )
    os.close(theirs)
    os.close(ours)
    assert json.loads((tmp_path / "info").read_text())["spec"]["interactive"] is False


def test_a_plugin_has_the_terminal_for_its_questions(tmp_path: Path) -> None:
    asks = "echo 'Your code:' >&2\nread code\necho \"$code\" >code"
    text = f"echo \"$KUBERNETES_EXEC_INFO\" >info\n{asks}\necho '{credential(token='t')}'"
    file = config(tmp_path, user=plugin(tmp_path, text))
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        client_config.command(["file", str(file)]),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    while b"Your code:" not in seen:
        seen += os.read(ours, 1000)
    os.write(ours, b"1234\n")
    answer = json.loads(process.communicate()[0])
    os.close(ours)
    assert answer["found"]["header"] == "Bearer t"
    assert (tmp_path / "code").read_text() == "1234\n"
    assert json.loads((tmp_path / "info").read_text())["spec"]["interactive"] is True


def test_no_secret_is_on_the_command_line_that_everybody_sees(tmp_path: Path) -> None:
    file = config(
        tmp_path,
        user=plugin(
            tmp_path,
            f"tr '\\0' '\\n' </proc/$PPID/cmdline >seen\necho '{credential(token=SECRET)}'",
        ),
    )
    entry = client_config.access(str(file), "kubeconfig")
    assert header(entry) == f"Bearer {SECRET}"
    assert (tmp_path / "seen").read_text().splitlines() == client_config.command(
        ["file", str(file), "kubeconfig"]
    )


def test_without_waiting_requests_the_process_ends_though_its_plugin_does_not(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "door")
    file = config(tmp_path, user=plugin(tmp_path, "echo $$ >door\nread never <door"))
    process = subprocess.Popen(
        client_config.command(["file", str(file)]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    (tmp_path / "door").read_text()
    assert process.stdout
    process.stdout.close()
    assert process.wait(timeout=60) == 128 + 15
    (tmp_path / "door").write_text("\n")


# Certificates.


@dataclass(frozen=True)
class Authority:
    """ca.pem, and what it signed: server.pem for cluster.example, client.pem; keys beside them as
    NAME.key.
    """

    directory: Path

    def text(self, name: str) -> str:
        return (self.directory / name).read_text()

    def data(self, name: str) -> str:
        return base64.b64encode((self.directory / name).read_bytes()).decode()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    where = tmp_path_factory.mktemp("authority")
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")
    (where / "names").write_text("subjectAltName=DNS:cluster.example\n")
    commands: list[tuple[str, ...]] = [
        (
            "req",
            "-x509",
            *new_key,
            "-days",
            "2",
            "-subj",
            "/CN=authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        )
    ]
    for name in ("server", "client"):
        commands += [
            ("req", *new_key, "-subj", f"/CN={name}", "-keyout", f"{name}.key",
             "-out", f"{name}.csr"),
            ("x509", "-req", "-in", f"{name}.csr",
             "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
             "-days", "2", "-extfile", "names", "-out", f"{name}.pem"),
        ]  # fmt: skip
    for words in commands:
        subprocess.run(("openssl", *words), cwd=where, capture_output=True, check=True)
    return Authority(where)


@dataclass
class Server:
    """An API server that requires client certificates of the authority and returns their names."""

    url: str = ""
    came: list[str] = field(default_factory=list)


@pytest.fixture
def server(authority: Authority) -> Iterator[Server]:
    made = Server()

    def answer(request: BaseHTTPRequestHandler, _: bytes) -> Reply:
        subject = request.connection.getpeercert()["subject"]
        made.came.append(dict(pair for (pair,) in subject)["commonName"])
        return Reply(b'{"gitVersion": "v1.34.0"}')

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            pass

    tls = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cafile=str(authority.directory / "ca.pem")
    )
    tls.load_cert_chain(authority.directory / "server.pem", authority.directory / "server.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    served = Quiet(("127.0.0.1", 0), http_handler(answer))
    served.socket = tls.wrap_socket(served.socket, server_side=True)
    made.url = f"https://127.0.0.1:{served.server_port}"
    with ServerThread(served):
        yield made


def version(file: Path) -> str:
    async def ask() -> str:
        async with rest.HttpCluster(client_config.access(str(file), None)) as cluster:
            return await cluster.version()

    return asyncio.run(ask())


def of_data(authority: Authority, directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        {
            "certificate-authority-data": authority.data("ca.pem"),
            "tls-server-name": "cluster.example",
        },
        {
            "client-certificate-data": authority.data("client.pem"),
            "client-key-data": authority.data("client.key"),
        },
    )


def of_files(authority: Authority, directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    for name in ("client.pem", "client.key"):
        (directory / name).write_text(authority.text(name))
    (directory / "ca.pem").write_text(
        "# the authority of Zoë's cluster\n" + authority.text("ca.pem")
    )
    cluster = {"certificate-authority": "ca.pem", "tls-server-name": "cluster.example"}
    return cluster, {"client-certificate": "client.pem", "client-key": "client.key"}


def of_plugin(authority: Authority, directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    (directory / "answer").write_text(
        credential(
            clientCertificateData=authority.text("client.pem"),
            clientKeyData=authority.text("client.key"),
        )
    )
    return {"insecure-skip-tls-verify": True}, plugin(directory, "cat answer")


@pytest.mark.system
@pytest.mark.sampled
@pytest.mark.parametrize("entry", [of_data, of_files, of_plugin])
def test_a_server_is_verified_and_sees_the_client_certificate(
    entry: Any, authority: Authority, server: Server, tmp_path: Path
) -> None:
    cluster, user = entry(authority, tmp_path)
    file = config(tmp_path, cluster={"server": server.url, **cluster}, user=user)
    assert version(file) == "v1.34.0"
    assert server.came == ["client"]


@pytest.mark.system
@pytest.mark.sampled
@pytest.mark.parametrize(
    "changes",
    [
        {"tls-server-name": "other.example"},
        {"tls-server-name": ""},
        {"certificate-authority-data": None},
    ],
    ids=["another name", "the address", "another authority"],
)
def test_a_server_that_is_not_the_one_meant_gets_nothing(
    changes: dict[str, Any], authority: Authority, server: Server, tmp_path: Path
) -> None:
    cluster, user = of_data(authority, tmp_path)
    cluster = {key: value for key, value in {**cluster, **changes}.items() if value}
    with pytest.raises(errors.ClusterUnreachable, match="certificate verify failed"):
        version(config(tmp_path, cluster={"server": server.url, **cluster}, user=user))
    assert server.came == []


@pytest.mark.system
def test_a_certificate_of_a_plugin_that_ends_is_replaced_for_later_connections(
    authority: Authority, server: Server, tmp_path: Path
) -> None:
    old, new = (
        KubeconfigEntry(
            server.url,
            None,
            ends,
            renewable=True,
            verify=False,
            certificate=authority.text(f"{name}.pem"),
            key=authority.text(f"{name}.key"),
        )
        for name, ends in (("client", 1000.0), ("server", 5000.0))
    )
    source = Source([old, new])
    at = ClientConfig(
        "me", client_config._tls(old, "me"), source.ask(), source.ask, lambda: source.now
    )

    async def ask() -> None:
        async with rest.HttpCluster(at) as cluster:
            await cluster.version()

    source.now = 900
    asyncio.run(ask())
    source.now = 990
    asyncio.run(ask())
    assert server.came == ["client", "server"]


CERTIFICATES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"certificate-authority": "empty"},
        {},
        "its certificates can't be read: the file of the certificate authority is empty",
    ),
    ({"certificate-authority": "words"}, {}, "its certificates can't be read: "),
    ({"certificate-authority": "missing"}, {}, "File does not exist: "),
    ({"certificate-authority-data": "%"}, {}, "its certificates can't be read: "),
    ({"certificate-authority-data": "a"}, {}, "is not a valid kubeconfig: "),
    (
        {},
        {"client-certificate": "words", "client-key": "words"},
        "its certificates can't be read: ",
    ),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("cluster", "user", "words"), CERTIFICATES)
def test_invalid_certificates_are_reported(
    cluster: dict[str, Any], user: dict[str, Any], words: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "words").write_text("just words")
    file = config(tmp_path, cluster={"server": "https://cluster.example", **cluster}, user=user)
    with pytest.raises(errors.ClusterError) as caught:
        client_config.access(str(file), None)
    assert str(caught.value).startswith(f"{file}")
    assert words in str(caught.value)


def test_keys_are_private_while_the_package_has_them_in_files() -> None:
    with kubeconfig._directory() as directory:
        assert stat.S_IMODE(Path(directory).stat().st_mode) == 0o700
    assert not Path(directory).exists()
