"""A real Gitea on a free port of this machine, built by `scripts/gitea`: users, tokens,
repositories, pull requests.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import secrets
import signal
import subprocess
import time
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

from tests import controlplane
from tests.controlplane import ROOT
from tests.gitservers import GIT_ENVIRONMENT

SETTINGS = """\
RUN_USER = {user}
WORK_PATH = {directory}
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = {port}
ROOT_URL = {url}/
STATIC_ROOT_PATH = {programs}
OFFLINE_MODE = true
DISABLE_SSH = true
[database]
DB_TYPE = sqlite3
[security]
INSTALL_LOCK = true
SECRET_KEY = {secret}
INTERNAL_TOKEN = {secret}
[service]
DISABLE_REGISTRATION = true
[session]
PROVIDER = memory
[indexer]
ISSUE_INDEXER_TYPE = db
[webhook]
ALLOWED_HOST_LIST = *
DELIVER_TIMEOUT = 60
[actions]
ENABLED = false
[log]
MODE = file
LEVEL = Warn
"""


@cache
def programs() -> Path:
    """The directory with the program, built when it is not there yet."""
    found = subprocess.run([ROOT / "scripts/gitea"], stdout=subprocess.PIPE, text=True, check=True)
    return Path(found.stdout.strip())


class Gitea:
    """A running server; `admin` is a token that may do everything. A repository is `owner/name`."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.port = directory, controlplane.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.admin = ""

    def start(self) -> Gitea:
        """Makes its database and an administrator, and returns when it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "app.ini").write_text(
            SETTINGS.format(
                user=getpass.getuser(),
                directory=self.directory,
                port=self.port,
                url=self.url,
                programs=programs(),
                secret=secrets.token_hex(32),
            )
        )
        self._run("migrate")
        self._run(
            "admin",
            "user",
            "create",
            "--admin",
            "--username",
            "root-of-all",
            "--random-password",
            "--must-change-password=false",
            "--email",
            "root@example.com",
        )
        self.admin = self.token("root-of-all", "all")
        with (self.directory / "out.log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command("web"),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._await()
        return self

    def stop(self) -> None:
        """Ends it."""
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def user(self, name: str) -> None:
        """A user who may log in by token only."""
        self._run(
            "admin",
            "user",
            "create",
            "--username",
            name,
            "--random-password",
            "--must-change-password=false",
            "--email",
            f"{name}@example.com",
        )

    def token(self, user: str, scopes: str) -> str:
        """A new token of the user, with scopes such as `read:user,write:issue`."""
        name = secrets.token_hex(4)
        words = ("--username", user, "--token-name", name, "--scopes", scopes, "--raw")
        told = self._run("admin", "user", "generate-access-token", *words)
        # a warning may be printed beside it
        return next(line for line in told.split() if re.fullmatch("[0-9a-f]{40}", line))

    def api(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        """One request; raises urllib's HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {
            "Authorization": f"token {token or self.admin}",
            "Content-Type": "application/json",
        }
        request = urllib.request.Request(f"{self.url}/api/v1{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read() or b"null")

    def clone(self, repository: str, directory: Path, token: str = "") -> Clone:
        """A work tree that pushes with the token."""
        return Clone(
            self.url.replace("://", f"://git:{token or self.admin}@") + f"/{repository}.git",
            directory,
        )

    def _command(self, *words: str) -> list[str]:
        return [str(programs() / "gitea"), "--config", str(self.directory / "app.ini"), *words]

    def _environment(self) -> dict[str, str]:
        # As root it asks whether that is meant; a container of tests has no other user.
        own = {
            "HOME": str(self.directory),
            "GITEA_WORK_DIR": str(self.directory),
            "GITEA_I_AM_BEING_UNSAFE_RUNNING_AS_ROOT": "true",
        }
        return {"PATH": os.environ["PATH"], **own}

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            self._command(*words),
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _await(self) -> None:
        """Polls it: it has no other way to tell that it is ready."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(
                    f"Gitea ended: {(self.directory / 'out.log').read_text()[-2000:]}"
                )
            with contextlib.suppress(OSError):
                self.api("GET", "/version")
                return
            time.sleep(0.05)
        raise TimeoutError(f"Gitea did not come up in two minutes; its log is in {self.directory}")


class Clone:
    """Somebody's clone of a repository."""

    def __init__(self, url: str, directory: Path) -> None:
        self.directory = directory
        subprocess.run(
            ("git", "clone", "--quiet", url, str(directory)), env=GIT_ENVIRONMENT, check=True
        )

    def git(self, *words: str) -> str:
        """What git prints."""
        done = subprocess.run(
            ("git", *words),
            cwd=self.directory,
            env=GIT_ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def push(self, branch: str, message: str) -> str:
        """The id of a new commit of all that lies there, pushed to the branch."""
        self.git("checkout", "--quiet", "-B", branch)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        self.git("push", "--quiet", "--force", "origin", branch)
        return self.git("rev-parse", "HEAD")
