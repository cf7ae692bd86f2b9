"""`gitops-ds comment` against a real Gitea: a pull request by a real push, and what its people see
of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.checks.report import markdown
from tests.agent_manifest import agent
from tests.forges.gitea import Clone, Gitea

pytestmark = [pytest.mark.forge, pytest.mark.xdist_group("gitea")]
PROGRAM = Path(sys.executable).with_name("gitops-ds")
BOT_SCOPES = "read:user,write:issue,write:repository"


@dataclass
class Review:
    """A repository with an open pull request, and the token of a bot that may write there."""

    gitea: Gitea
    project: str
    number: int
    work: Clone
    token: str

    @property
    def head(self) -> str:
        return str(
            self.gitea.api("GET", f"/repos/{self.project}/pulls/{self.number}")["head"]["sha"]
        )

    def push(self, label: str) -> str:
        """A new commit of the pull request: correct with the label `agent`, wrong with another."""
        (self.work.directory / "agent.yaml").write_text(agent(label=label))
        return self.work.push("change", f"label {label}")

    def check(self, report: Path) -> int:
        """Checks the work tree as a job of that pull request does."""
        return self._run(
            "check", str(self.work.directory), "-q", "-o", f"markdown={report}", token=""
        ).returncode

    def comment(
        self, report: Path, *words: str, token: str | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """The command in a job of that pull request."""
        return self._run(
            "comment",
            "--report",
            str(report),
            *words,
            token=self.token if token is None else token,
            **more,
        )

    def comments(self) -> list[dict[str, Any]]:
        return list(self.gitea.api("GET", f"/repos/{self.project}/issues/{self.number}/comments"))

    def statuses(self, sha: str) -> dict[str, tuple[str, str]]:
        items = self.gitea.api(
            "GET", f"/repos/{self.project}/commits/{urllib.parse.quote(sha)}/status"
        )
        return {
            item["context"]: (item["status"], item["description"])
            for item in items["statuses"] or ()
        }

    def _run(self, *words: str, token: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.work.directory.parent),
            "GITEA_ACTIONS": "true",
            "GITHUB_SERVER_URL": self.gitea.url,
            "GITHUB_API_URL": f"{self.gitea.url}/api/v1",
            "GITHUB_REPOSITORY": self.project,
            "GITHUB_REF": f"refs/pull/{self.number}/head",
            "GITHUB_SHA": self.work.git("rev-parse", "HEAD"),
            "GITHUB_RUN_ID": "5",
            **more,
        }
        environment |= {"GITEA_TOKEN": token} if token else {}
        done = subprocess.run(
            [PROGRAM, *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert not token or token not in done.stdout + done.stderr
        return done


@pytest.fixture
def review(gitea: Gitea, tmp_path: Path) -> Review:
    name = f"fleet-{os.urandom(4).hex()}"
    own = gitea.repository(name, "bot")
    project = f"{name}-owner/{name}"
    work = gitea.clone(project, tmp_path / "work", own)
    (work.directory / "agent.yaml").write_text(agent())
    work.push("main", "an agent")
    made = Review(gitea, project, 0, work, gitea.token(f"{name}-bot", BOT_SCOPES))
    made.push("another")
    pull = {"head": "change", "base": "main", "title": "A change"}
    made.number = gitea.api("POST", f"/repos/{project}/pulls", pull, own)["number"]
    return made


def test_a_report_is_posted_and_updated_and_the_commit_has_its_status(
    review: Review, tmp_path: Path
) -> None:
    report = tmp_path / "report.md"
    assert review.check(report) == 1
    first = review.comment(report)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines()[0] == f"comment created on {review.project}#{review.number}"
    (posted,) = review.comments()
    assert posted["body"].startswith("<!-- gitops-ds:report key=check v=1 -->\n")
    assert "DS101" in posted["body"]
    assert f"Checked `{review.head[:12]}`" in posted["body"]
    state, words = review.statuses(review.head)["gitops-ds/check"]
    assert state == "failure"
    assert words.startswith("1 error")

    assert review.comment(report).stdout.startswith("comment unchanged")
    mended = review.push("agent")
    assert review.check(report) == 0
    again = review.comment(report)
    assert again.stdout.splitlines()[0] == f"comment updated on {review.project}#{review.number}", (
        again.stderr
    )
    (updated,) = review.comments()
    assert updated["id"] == posted["id"]
    assert "DS101" not in updated["body"]
    assert review.statuses(mended)["gitops-ds/check"][0] == "success"


@pytest.mark.parametrize(
    ("scopes", "done", "words"),
    [
        ("read:user,read:repository,read:issue", [], ["`write:issue`", "`write:repository`"]),
        ("read:user,write:repository,read:issue", ["status"], ["`write:issue`"]),
        ("read:user,write:issue,read:repository", ["comment"], ["`write:repository`"]),
        ("write:issue,write:repository", ["status"], ["`read:user`"]),
        ("read:user,write:issue", ["comment"], ["`read:repository`"]),
    ],
)
def test_the_missing_right_of_a_token_is_reported(
    review: Review, tmp_path: Path, scopes: str, done: list[str], words: list[str]
) -> None:
    report = tmp_path / "report.md"
    review.check(report)
    bot = f"{review.project.partition('/')[2]}-bot"
    refused = review.comment(report, token=review.gitea.token(bot, scopes))
    assert refused.returncode == 3
    for word in words:
        assert word in refused.stderr
    assert "Traceback" not in refused.stderr
    assert ("status" in done) is bool(review.statuses(review.head))


def test_a_user_without_write_access_and_an_invalid_token_are_reported(
    review: Review, tmp_path: Path
) -> None:
    report = tmp_path / "report.md"
    review.check(report)
    stranger = f"{review.project.partition('/')[2]}-stranger"
    review.gitea.user(stranger)
    by_stranger = review.comment(report, token=review.gitea.token(stranger, BOT_SCOPES))
    assert by_stranger.returncode == 3
    assert "an account that may write to the repository" in by_stranger.stderr
    unknown = review.comment(report, token="0" * 40)
    assert unknown.returncode == 3
    assert "did not accept the token of GITEA_TOKEN" in unknown.stderr
    none = review.comment(report, token="")
    assert none.returncode == 2
    assert "GITEA_TOKEN" in none.stderr


def test_the_largest_report_is_accepted(review: Review, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    text = f"{markdown.marker('check')}\n**gitops-ds check: no findings** in 1 file, 1 object.\n"
    filler = "x" * 99 + "\n"
    foot = f"\n<sub>Checked `{review.head[:12]}`</sub>\n"
    report.write_text(
        text + filler * ((markdown.COMMENT - len(text) - len(foot)) // len(filler)) + foot
    )
    assert review.comment(report).returncode == 0
    assert review.comment(report).stdout.startswith("comment unchanged")
