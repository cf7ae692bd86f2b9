"""Real git servers on this machine for tests: `git http-backend` behind TLS with a login, a real
sshd, and repositories on them.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import getpass
import os
import shutil
import socketserver
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.http_servers import ServerThread

GIT_ENVIRONMENT = {
    "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_AUTHOR_DATE": "1767225600 +0000",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "GIT_COMMITTER_DATE": "1767225600 +0000",
    "LC_ALL": "C",
}


def git(directory: Path, *words: str, environment: Mapping[str, str] = GIT_ENVIRONMENT) -> str:
    """The output of git in a directory."""
    done = subprocess.run(
        ("git", *words), cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Upstream:
    """A bare repository as on a Git host, and the pushes of its users."""

    def __init__(self, directory: Path) -> None:
        self.path, self.work = directory, directory.with_suffix(".work")
        self.work.mkdir(parents=True)
        run = ("git", "init", "--quiet", "--bare", "--initial-branch=main", str(directory))
        subprocess.run(run, env=GIT_ENVIRONMENT, check=True)
        self.git("config", "http.receivepack", "true")
        self.git("config", "uploadpack.allowAnySHA1InWant", "false")

    def git(self, *words: str, input: bytes | None = None) -> str:
        """The output of git in the repository."""
        environment = {
            **GIT_ENVIRONMENT,
            "GIT_DIR": str(self.path),
            "GIT_WORK_TREE": str(self.work),
        }
        run = subprocess.run(
            ("git", *words),
            env=environment,
            cwd=self.work,
            input=input,
            capture_output=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr.decode()
        return run.stdout.decode("utf-8", "replace").strip()

    def commit(self, files: Mapping[str, str | bytes | None], message: str = "change") -> str:
        """The id of a new commit on the current branch with these contents of files (None:
        deleted).
        """
        for name, content in files.items():
            path = self.work / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")

    def tree(self, *entries: tuple[str, str, bytes, bytes]) -> str:
        """A commit on main with a tree of exactly these entries (mode, type, content, name), also
        ones that git would not create.
        """
        rows = b""
        for mode, type, content, name in entries:
            id = (
                self.git("hash-object", "-w", "-t", "blob", "--stdin", input=content)
                if type == "blob"
                else content.decode()
            )
            rows += mode.lstrip("0").encode() + b" " + name + b"\0" + bytes.fromhex(id)
        made = self.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", input=rows)
        commit = self.git("commit-tree", made, "-m", "a tree")
        self.git("update-ref", "refs/heads/main", commit)
        return commit


@dataclass
class HttpServer:
    """A git server over https. Tests can change its behaviour: `status` (of all responses),
    `redirect` (the target).
    """

    root: Path
    url: str
    authority: bytes
    user: str = "bot"
    password: str = "s3cret/%:@ü"
    token: str = "a-bearer-token"
    anonymous: bool = False
    status: int = 0
    redirect: str = ""
    requests: list[str] = field(default_factory=list)

    def repository(self, name: str) -> Upstream:
        """A new repository, served as `url/NAME`."""
        return Upstream(self.root / name)

    def credentials(self, directory: Path) -> dict[str, str]:
        """The credentials of a settings file, in files of a directory."""
        files = {"tokenFile": self.password.encode(), "caFile": self.authority}
        for name, content in files.items():
            (directory / name).write_bytes(content)
            (directory / name).chmod(0o600)
        return {"username": self.user, **{name: str(directory / name) for name in files}}

    def allows(self, header: str) -> bool:
        """Whether an Authorization header is one of the two valid ones."""
        basic = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return self.anonymous or header in {f"Basic {basic}", f"Bearer {self.token}"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: HttpServer

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self._body())

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, body: bytes) -> None:
        owner = self.owner
        owner.requests.append(f"{self.command} {self.path}")
        if owner.redirect:
            self._send(301, {"Location": owner.redirect + self.path}, b"")
        elif owner.status:
            self._send(owner.status, {}, b"")
        elif not owner.allows(self.headers.get("Authorization", "")):
            self._send(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
        else:
            status, headers, content = self._backend(body)
            self._send(status, headers, content)

    def _backend(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        path, _, query = self.path.partition("?")
        environment = {
            **GIT_ENVIRONMENT,
            "GIT_PROJECT_ROOT": str(self.owner.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "REMOTE_USER": self.owner.user,
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        run = subprocess.run(
            ("git", "http-backend"), env=environment, input=body, capture_output=True, check=False
        )
        head, _, content = run.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        return int(headers.pop("Status", "200").split()[0]), headers, content

    def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _TlsServer(ThreadingHTTPServer):
    context: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        # A client that doesn't trust the server ends the handshake, which is not an error of the
        # test.
        with (
            contextlib.suppress(OSError),
            self.context.wrap_socket(request, server_side=True) as secure,
        ):
            super().finish_request(secure, client_address)


@contextlib.contextmanager
def http_git_server(directory: Path) -> Iterator[HttpServer]:
    """A git server on https://localhost with a certificate from its own authority; it requires a
    user or a bearer token.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _, _, authority = _certificates()
    handler: Any = type("Handler", (_Handler,), {})
    server = _TlsServer(("127.0.0.1", 0), handler)
    server.context = tls_context()
    handler.owner = HttpServer(
        directory, f"https://localhost:{server.server_port}", authority.read_bytes()
    )
    with ServerThread(server):
        yield handler.owner


def tls_context() -> ssl.SSLContext:
    """The context of a server with the certificate."""
    key, certificate, _ = _certificates()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@functools.cache
def _certificates() -> tuple[Path, Path, Path]:
    """A server's key and certificate, and the authority that signed it; created once per test
    process.
    """
    where = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, where)
    (where / "extensions").write_text(
        "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:10.0.0.2,DNS:git.example.com\nbasicConstraints=CA:FALSE\n"
    )
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")
    for words in (
        (
            "req",
            "-x509",
            *new_key,
            "-days",
            "2",
            "-subj",
            ("/CN=test authority"),
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        ),
        ("req", *new_key, "-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "request.pem"),
        (
            "x509",
            "-req",
            "-in",
            "request.pem",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "extensions",
            "-out",
            "certificate.pem",
        ),
    ):
        subprocess.run(("openssl", *words), cwd=where, capture_output=True, check=True)
    return where / "key.pem", where / "certificate.pem", where / "ca.pem"


@dataclass
class SshServer:
    """A real sshd for this user: an accepted key, a rejected one, and the known_hosts line of its
    host key.
    """

    root: Path
    port: int
    key: bytes
    strange_key: bytes
    known_hosts: bytes

    def repository(self, name: str) -> Upstream:
        """A new repository; its address is `url(NAME)`."""
        return Upstream(self.root / name)

    def url(self, name: str) -> str:
        """The address of a repository."""
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}{self.root}/{name}"


@contextlib.contextmanager
def ssh_git_server(directory: Path) -> Iterator[SshServer]:
    """An sshd with its own host key and configuration; each connection is one `sshd -i`, so no
    process remains.
    """
    sshd = shutil.which("sshd", path=GIT_ENVIRONMENT["PATH"])
    assert sshd, "sshd is missing for the tests: run `make setup-system`"
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("host", "user", "strange"):
        words = (
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            "test",
            "-f",
            str(directory / name),
        )
        subprocess.run(words, check=True)
    if os.geteuid() == 0:
        # sshd requires it even for one connection; normally its service creates it at boot.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    configuration = directory / "sshd_config"
    configuration.write_text(
        f"HostKey {directory}/host\nAuthorizedKeysFile {directory}/user.pub\nStrictModes "
        "no\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin prohibit-password\nAllowTcpForwarding "
        "no\nPidFile none\nUseDNS no\n"
    )
    command = (sshd, "-i", "-f", str(configuration))

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            environment = {"PATH": GIT_ENVIRONMENT["PATH"]}
            subprocess.run(
                command,
                stdin=self.request,
                stdout=self.request,
                stderr=subprocess.DEVNULL,
                env=environment,
                check=False,
            )

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    port = server.server_address[1]
    host_key = (directory / "host.pub").read_text().rsplit(" ", 1)[0]
    keys = [(directory / name).read_bytes() for name in ("user", "strange")]
    with ServerThread(server):
        yield SshServer(
            directory, port, keys[0], keys[1], f"[127.0.0.1]:{port} {host_key}\n".encode()
        )


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """The port of a server that accepts connections and never responds."""
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        # Never served: the kernel accepts the connection, and no process responds.
        yield server.server_address[1]
