"""The whole way, for real: Gitea, its signed webhook, the service, the API server, and back to
Gitea as a commit's status.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane, gitservers
from tests.forges.gitea import Clone, Gitea
from tests.forges.test_gitea import BOT_SCOPES, Review
from tests.http_servers import Reply, http_server
from tests.plan.world import daemonset
from tests.service.test_service import PROGRAM, running, until
from tests.service.test_service import settings as service_settings
from tests.thread_loop import ThreadLoop

pytestmark = [
    pytest.mark.forge,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("gitea"),
]
SECRET = "a secret of the webhook"
PATIENCE = 120.0  # seconds


@contextlib.contextmanager
def tls(port: int) -> Iterator[int]:
    """A port with TLS, as a forge has, that forwards to the server at `port`."""
    context = gitservers.tls_context()
    loop, here = ThreadLoop(), controlplane.free_port()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, outer), pump(inner, writer))

    async def closed() -> None:
        server.close()

    server = loop.do(asyncio.start_server(relay, "127.0.0.1", here, ssl=context))
    try:
        yield here
    finally:
        loop.do(closed())
        loop.stop()


@contextlib.contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A receiver of notifications: its address, and the items with a valid signature."""
    news: list[dict[str, Any]] = []

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> Reply:
        right = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        if hmac.compare_digest(request.headers["X-Signature"], right):
            news.extend(json.loads(body)["items"])
        return Reply(status=204)

    with http_server(answer) as url:
        yield f"{url}/hook-of-a-receiver", news


@dataclass
class Team:
    """People around a repository on Gitea."""

    gitea: Gitea
    name: str
    owner: str
    token: str
    bot: str
    url: str
    work: Clone

    @property
    def project(self) -> str:
        return f"{self.owner}/{self.name}"

    def api(self, method: str, path: str, body: Any = None) -> Any:
        return self.gitea.api(method, f"/repos/{self.project}{path}", body, self.token)

    def settings(self, directory: Path, repository: Mapping[str, Any], **groups: Any) -> str:
        """The settings file of a service of the cluster eu-1."""
        for name, text in (("git-token", self.token), ("forge-token", self.bot)):
            (directory / name).write_text(text + "\n")
        _, _, authority = gitservers._certificates()
        forge = {"url": self.gitea.url, "tokenFile": str(directory / "forge-token")}
        credentials = {"tokenFile": str(directory / "git-token"), "caFile": str(authority)}
        group = {
            "url": self.url,
            "credentials": credentials,
            "forge": {"kind": "gitea", **forge},
            **repository,
        }
        return service_settings(
            directory, **{"cluster": {"name": "eu-1"}, **groups}, repository=group
        )[1]

    def add_webhook(self, port: int) -> None:
        """A webhook for pushes, to the service on this port."""
        config = {
            "url": f"http://127.0.0.1:{port}/hook",
            "content_type": "json",
            "secret": SECRET,
        }
        hook = {"type": "gitea", "active": True, "events": ["push"], "config": config}
        self.api("POST", "/hooks", hook)

    def protect_main(self) -> None:
        """Lets main change through pull requests only."""
        self.api("POST", "/branch_protections", {"rule_name": "main", "enable_push": False})

    def review(self, number: int, report: Path) -> None:
        """Checks a pull request and posts the report as its only comment."""
        review = Review(self.gitea, self.project, number, self.work, self.bot)
        review.check(report)
        assert review.comment(report).stdout.startswith(
            f"comment created on {self.project}#{number}"
        )
        assert len(review.comments()) == 1

    def propose(self, branch: str, tag: str) -> int:
        """A pull request for another image."""
        self.work.git("fetch", "--quiet", "origin", "main")
        self.work.git("checkout", "--quiet", "--detach", "origin/main")
        body = daemonset("agent", f"registry.example.com/agent:{tag}", self.name)
        (self.work.directory / "agent.json").write_text(json.dumps(body, indent=2))
        self.work.push(branch, f"agent:{tag}")
        return int(
            self.api("POST", "/pulls", {"head": branch, "base": "main", "title": f"agent:{tag}"})[
                "number"
            ]
        )

    def merge(self, number: int) -> str:
        """The commit on main."""
        return self.gitea.merge(self.project, number, token=self.token)

    def statuses(self, commit: str) -> list[tuple[str, str]]:
        """Every status of the commit, in order."""
        items = self.api("GET", f"/commits/{commit}/statuses?sort=oldest")
        return [
            (item["status"], item["description"])
            for item in items
            if item["context"] == "gitops-ds/eu-1"
        ]


@pytest.fixture
def team(tmp_path: Path, gitea: Gitea) -> Iterator[Team]:
    name = f"way-{os.urandom(4).hex()}"
    owner, bot = f"{name}-owner", f"{name}-bot"
    for user in (owner, bot):
        gitea.user(user)
    token = gitea.token(owner, "all")
    gitea.api(
        "POST", "/user/repos", {"name": name, "auto_init": True, "default_branch": "main"}, token
    )
    gitea.api("PUT", f"/repos/{owner}/{name}/collaborators/{bot}", {"permission": "write"}, token)
    work = gitea.clone(f"{owner}/{name}", tmp_path / "work", token)
    (work.directory / "gitops-ds.yaml").write_text(
        f"version: v1\nname: {name}\nmanifests: [agent.json]\n"
    )
    (work.directory / "clusters").mkdir()
    (work.directory / "clusters/eu-1.yaml").write_text("environment: production\n")
    (work.directory / "agent.json").write_text(
        json.dumps(daemonset("agent", "registry.example.com/agent:1", name), indent=2)
    )
    with tls(gitea.port) as port:
        url = f"https://localhost:{port}/{owner}/{name}"
        yield Team(gitea, name, owner, token, gitea.token(bot, BOT_SCOPES), url, work)


def settings(directory: Path, team: Team, listen: int, receiver_url: str) -> str:
    files = {"hook-secret": SECRET, "news-url": receiver_url, "news-secret": SECRET}
    for name, text in files.items():
        (directory / name).write_text(text + "\n")
    secrets = {"urlFile": str(directory / "news-url"), "secretFile": str(directory / "news-secret")}
    return team.settings(
        directory,
        {"interval": "1h", "retryInterval": "1s"},
        cluster={"name": "eu-1", "namespace": f"{team.name}-home"},
        health={"progressDeadline": "10s"},
        listen={
            "address": f"127.0.0.1:{listen}",
            "webhook": {"secretFile": str(directory / "hook-secret")},
        },
        notify=[
            {"name": "on-call", **secrets},
            {"name": "broken", "urlFile": str(directory / "none")},
        ],
    )


def test_the_status_of_a_commit_follows_its_push(
    tmp_path: Path, team: Team, control_plane: controlplane.ControlPlane
) -> None:
    plane, listen = control_plane, controlplane.free_port()
    plane.kubectl("create", "namespace", team.name)
    first = team.work.push("main", "agent:1")
    with receiver() as (receiver_url, news):
        file = settings(tmp_path, team, listen, receiver_url)
        home = ("--state-namespace", f"{team.name}-home", "--settings", file)
        with running(tmp_path, plane, *home) as (process, log):

            def wait_for_status(commit: str, state: str) -> None:
                until(
                    lambda: state in [status for status, _ in team.statuses(commit)],
                    log.read_text,
                    PATIENCE,
                )

            wait_for_status(first, "success")
            team.add_webhook(listen)
            team.protect_main()
            number = team.propose("broken", "broken")
            team.review(number, tmp_path / "report.md")
            bad = team.merge(number)
            wait_for_status(bad, "failure")
            assert "the template fails on" in team.statuses(bad)[-1][1]
            until(lambda: "failed" in [item["topic"] for item in news], log.read_text, PATIENCE)
            process.terminate()
            assert process.wait(30) == 0

        before = {commit: team.statuses(commit) for commit in (first, bad)}
        with running(tmp_path, plane, *home) as (_, log):
            until(lambda: "ready" in log.read_text(), log.read_text, PATIENCE)
            output = roll_back(tmp_path, team, plane)
            assert "pull request for" in output, output
            (pull,) = team.api("GET", "/pulls?state=open")
            assert pull["title"].startswith("Revert")
            good = team.merge(pull["number"])
            wait_for_status(good, "success")

            revisions = json.loads(
                plane.kubectl("-n", team.name, "get", "controllerrevisions", "-o", "json")
            )["items"]
            assert max(revision["revision"] for revision in revisions) == 3
            assert {commit: team.statuses(commit) for commit in (first, bad)} == before
            assert team.statuses(good)[-1][1] == f"{team.name}/agent healthy on 3 nodes"
            until(
                lambda: [item["topic"] for item in news].count("done") == 2, log.read_text, PATIENCE
            )
            written = log.read_text()

    assert [item["commit"] for item in news if item["topic"] == "commit"] == [first, bad, good]
    for commit in (first, bad, good):
        states = [state for state, _ in team.statuses(commit)]
        assert states == sorted(states, key=("pending", "failure", "success").index)
        assert len(set(team.statuses(commit))) == len(states)
    assert written.count("notification to broken failed:") == 1
    assert "webhook (gitea) reported a push" in written
    for secret in (team.token, team.bot, SECRET, "/hook-of-a-receiver"):
        assert secret not in written


def roll_back(directory: Path, team: Team, plane: controlplane.ControlPlane) -> str:
    """The branch accepts no push, so the rollback becomes a pull request."""
    environment = {
        **gitservers.GIT_ENVIRONMENT,
        "GITOPS_DS_CACHE": str(directory / "desk"),
        "GITOPS_DS_GIT_TOKEN": team.token,
        "GITOPS_DS_GIT_CA_FILE": str(gitservers._certificates()[2]),
        "GITEA_TOKEN": team.token,
    }
    where = (
        "-C",
        team.url,
        "--kubeconfig",
        str(plane.kubeconfig),
        "--state-namespace",
        f"{team.name}-home",
    )
    who = ("--author", "Ann <ann@example.com>", "--cluster", "eu-1")
    forge = ("--push", "--pull-request", "--forge", "gitea", "--url", team.gitea.url)
    words = (
        PROGRAM,
        "rollback",
        "ds/agent",
        "-n",
        team.name,
        "--to-revision",
        "1",
        *where,
        *who,
        *forge,
    )
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
