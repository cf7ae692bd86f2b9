"""A real Gitea on a free port of this machine, built by `scripts/gitea`: users, tokens,
repositories, pull requests.
"""

from __future__ import annotations

import base64
import getpass
import json
import os
import re
import secrets
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.gitservers import GIT_ENVIRONMENT, git
from tests.local_server import LocalServer, program

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


class Gitea(LocalServer):
    """A running server; `admin` is a token that may do everything. A repository is `owner/name`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.admin = ""
        self._passwords: dict[str, str] = {}

    def start(self) -> Gitea:
        """Makes its database and an administrator, and returns when it answers."""
        (self.directory / "app.ini").write_text(
            SETTINGS.format(
                user=getpass.getuser(),
                directory=self.directory,
                port=self.port,
                url=self.url,
                programs=program("gitea").parent,
                secret=secrets.token_hex(32),
            )
        )
        self._run("migrate")
        words = ("--username", "root-of-all", "--email", "root@example.com")
        password = ("--random-password", "--must-change-password=false")
        self._run("admin", "user", "create", "--admin", *words, *password)
        scopes = ("--username", "root-of-all", "--scopes", "all", "--raw")
        made = self._run("admin", "user", "generate-access-token", *scopes)
        # a warning may be printed beside it
        self.admin = next(one for one in made.split() if re.fullmatch("[0-9a-f]{40}", one))
        self.run(self._command("web"), self._environment(), self._is_ready)
        return self

    def user(self, name: str) -> None:
        """A user with a random password."""
        self._passwords[name] = secrets.token_hex(16)
        body = {"username": name, "email": f"{name}@example.com", "must_change_password": False}
        self.api("POST", "/admin/users", {**body, "password": self._passwords[name]})

    def repository(self, name: str, *writers: str) -> str:
        """Makes NAME-owner/NAME, with a user NAME-ROLE for its owner and for each role that may
        write; returns the owner's token.
        """
        for role in ("owner", *writers):
            self.user(f"{name}-{role}")
        token = self.token(f"{name}-owner", "all")
        new = {"name": name, "auto_init": True, "default_branch": "main"}
        self.api("POST", "/user/repos", new, token)
        for role in writers:
            path = f"/repos/{name}-owner/{name}/collaborators/{name}-{role}"
            self.api("PUT", path, {"permission": "write"}, token)
        return token

    def token(self, user: str, scopes: str) -> str:
        """A new token of the user, with scopes such as `read:user,write:issue`."""
        body = {"name": secrets.token_hex(4), "scopes": scopes.split(",")}
        login = base64.b64encode(f"{user}:{self._passwords[user]}".encode()).decode()
        return str(self._request("POST", f"/users/{user}/tokens", body, f"Basic {login}")["sha1"])

    def api(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        """One request; raises urllib's HTTPError."""
        return self._request(method, path, body, f"token {token or self.admin}")

    def _request(self, method: str, path: str, body: Any, login: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": login, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/v1{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read() or b"null")

    def merge(self, repository: str, number: int, how: str = "squash", token: str = "") -> str:
        """The commit on main of a merged pull request."""

        def merged() -> bool:
            try:
                self.api("POST", f"/repos/{repository}/pulls/{number}/merge", {"Do": how}, token)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code != 405:  # until it has checked for conflicts
                    raise AssertionError(error) from error
                return False
            return True

        self.until(merged)
        branch = self.api("GET", f"/repos/{repository}/branches/main", None, token)
        return str(branch["commit"]["id"])

    def clone(self, repository: str, directory: Path, token: str = "") -> Clone:
        """A work tree that pushes with the token."""
        return Clone(
            self.url.replace("://", f"://git:{token or self.admin}@") + f"/{repository}.git",
            directory,
        )

    def _command(self, *words: str) -> list[str]:
        return [str(program("gitea")), "--config", str(self.directory / "app.ini"), *words]

    def _environment(self) -> dict[str, str]:
        # As root it asks whether that is meant; a container of tests has no other user.
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "GITEA_WORK_DIR": str(self.directory),
            "GITEA_I_AM_BEING_UNSAFE_RUNNING_AS_ROOT": "true",
        }

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

    def _is_ready(self) -> bool:
        return bool(self.api("GET", "/version"))


class Clone:
    """A contributor's clone of a repository."""

    def __init__(self, url: str, directory: Path) -> None:
        self.directory = directory
        subprocess.run(
            ("git", "clone", "--quiet", url, str(directory)), env=GIT_ENVIRONMENT, check=True
        )

    def git(self, *words: str) -> str:
        """What git prints."""
        return git(self.directory, *words)

    def push(self, branch: str, message: str) -> str:
        """The id of a new commit of all that lies there, pushed to the branch."""
        self.git("checkout", "--quiet", "-B", branch)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        self.git("push", "--quiet", "--force", "origin", branch)
        return self.git("rev-parse", "HEAD")
