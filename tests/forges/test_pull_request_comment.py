"""From a report, a CI's environment and options to a comment and a status: what is meant, what is
missing, what does not fit.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.checks.report import markdown
from gitops_ds.cli.comment import pull_request_comment
from gitops_ds.cli.comment.arguments import CommentArgs
from gitops_ds.cli.comment.pull_request_comment import CommentResult
from gitops_ds.core import errors
from gitops_ds.core.finding import Severity
from gitops_ds.core.values import replace
from gitops_ds.forges.contract import StatusState
from tests.forges import comment_line
from tests.forges.servers import HEAD, Fault, GitHub, GitLab, Server, User
from tests.forges.test_pure import ACTIONS, GITLAB, OF_PULL, OF_RUN

OTHER = "c" * 40
FOUND = "1 error, 0 warnings, 0 info"


def written(
    directory: Path, *, head: str = HEAD[:12], summary: str = FOUND, key: str = "check"
) -> str:
    """The name of a report of that commit."""
    file = directory / "report.md"
    foot = f"\n<sub>Checked `{head}`; against `main`; gitops-ds 1</sub>\n" if head else ""
    file.write_text(
        f"{markdown.marker(key)}\n**gitops-ds check: {summary}** in 1 file, 1 object.\n{foot}"
    )
    return str(file)


def github(directory: Path, event: Mapping[str, Any] = OF_PULL, **more: str) -> dict[str, str]:
    """The environment of a job of GitHub Actions."""
    (directory / "event.json").write_text(json.dumps(event))
    return {
        **ACTIONS,
        "GITHUB_EVENT_PATH": str(directory / "event.json"),
        "GITHUB_TOKEN": "good-token",
        **more,
    }


def done(on: Server, options: CommentArgs, environ: Mapping[str, str]) -> CommentResult:
    """The result on that server, whose address is `URL` in the environment and in the options."""

    async def inner() -> CommentResult:
        async with on.running():
            there = {name: value.replace("URL", on.url) for name, value in environ.items()}
            task = pull_request_comment.task(
                replace(options, url=options.url.replace("URL", on.url)), there
            )
            return await pull_request_comment.carry_out(task, there, 5)

    return asyncio.run(inner())


def on_github(directory: Path, event: Mapping[str, Any] = OF_PULL, **more: str) -> dict[str, str]:
    return github(directory, event, GITHUB_API_URL="URL/api/v3", **more)


def on_gitlab(**more: str) -> dict[str, str]:
    return {**GITLAB, "CI_API_V4_URL": "URL/api/v4", "GITLAB_TOKEN": "good-token", **more}


def test_a_job_of_a_pull_request_comments_and_sets_the_status(tmp_path: Path) -> None:
    on = GitHub()
    result = done(on, comment_line.args(written(tmp_path)), on_github(tmp_path))
    assert result.refused == ()
    assert result.messages == (
        "comment created on acme/agents#7",
        f"status gitops-ds/check: failure ({FOUND}) of {HEAD[:12]}",
    )
    (comment,) = on.comments
    assert comment.body.splitlines()[:2] == [
        markdown.marker("check"),
        f"<!-- gitops-ds:posted commit={HEAD} run=100.2 -->",
    ]
    (status,) = on.statuses
    assert (status["sha"], status["target_url"]) == (
        HEAD,
        "https://github.com/acme/agents/actions/runs/100",
    )


def test_a_job_of_a_merge_request_comments_and_sets_the_status(tmp_path: Path) -> None:
    on = GitLab()
    result = done(on, comment_line.args(written(tmp_path)), on_gitlab())
    assert result.messages == (
        "comment created on 42!7",
        f"status gitops-ds/check: failure ({FOUND}) of {HEAD[:12]}",
    )
    assert on.statuses[0]["pipeline_id"] == 100


def test_the_missing_right_of_a_gitlab_job_token_is_reported(tmp_path: Path) -> None:
    environ = on_gitlab(CI_JOB_TOKEN="good-token")
    del environ["GITLAB_TOKEN"]
    result = done(GitLab(), comment_line.args(written(tmp_path)), environ)
    assert result.messages == ()
    assert "CI_JOB_TOKEN" in str(result.refused[0])


def test_the_status_is_set_though_the_comment_was_refused_and_the_other_way(tmp_path: Path) -> None:
    on = GitHub()
    on.users["good-token"] = User("gitops-bot", 11, frozenset({"read", "status"}))
    result = done(on, comment_line.args(written(tmp_path)), on_github(tmp_path))
    assert (len(result.messages), len(result.refused), len(on.statuses)) == (1, 1, 1)
    on.users["good-token"] = User("gitops-bot", 11, frozenset({"read", "comment"}))
    result = done(on, comment_line.args(written(tmp_path)), on_github(tmp_path))
    assert (len(result.messages), len(result.refused), len(on.comments)) == (1, 1, 1)


@pytest.mark.parametrize(
    ("only", "comments", "statuses"), [("", 1, 1), ("comment", 1, 0), ("status", 0, 1)]
)
def test_only_the_requested_parts_are_posted(
    tmp_path: Path, only: str, comments: int, statuses: int
) -> None:
    on = GitHub()
    done(on, comment_line.args(written(tmp_path), only=only), on_github(tmp_path))
    assert (len(on.comments), len(on.statuses)) == (comments, statuses)


def test_a_pull_request_with_a_newer_commit_keeps_its_comment(tmp_path: Path) -> None:
    on = GitHub()
    on.head = OTHER
    theirs = on.add(on.users["good-token"], f"{markdown.marker('check')}\nnewer")
    result = done(on, comment_line.args(written(tmp_path)), on_github(tmp_path))
    assert f"has the newer commit {OTHER[:12]}" in result.messages[0]
    assert theirs.body.endswith("newer")
    assert [status["sha"] for status in on.statuses] == [HEAD]


def test_a_job_of_more_rights_finds_the_pull_request_of_a_fork(tmp_path: Path) -> None:
    on, options = GitHub(), comment_line.args(written(tmp_path))
    environ = on_github(tmp_path, OF_RUN, GITHUB_REF="refs/heads/main")
    assert done(on, options, environ).messages[0] == "comment created on acme/agents#7"
    on.head = OTHER
    assert "no pull request is at this commit" in done(on, options, environ).messages[0]


def test_a_push_without_a_pull_request_has_a_status_and_no_comment(tmp_path: Path) -> None:
    on = GitHub()
    environ = on_github(tmp_path, {}, GITHUB_REF="refs/heads/main", GITHUB_SHA=HEAD)
    result = done(on, comment_line.args(written(tmp_path)), environ)
    assert "no comment" in result.messages[0]
    assert (on.comments, [status["sha"] for status in on.statuses]) == ([], [HEAD])


def outside_of_a_ci(on: Server, report: str) -> CommentResult:
    options = comment_line.args(report, forge="github", url="URL", project="acme/agents", number=7)
    return done(on, options, {"GH_TOKEN": "good-token"})


def test_outside_of_a_ci_all_values_are_options(tmp_path: Path) -> None:
    on = GitHub()
    assert outside_of_a_ci(on, written(tmp_path)).refused == ()
    assert on.statuses[0]["sha"] == HEAD


def test_only_a_short_commit_of_an_outdated_report_is_known(tmp_path: Path) -> None:
    on = GitHub()
    on.head = OTHER
    result = outside_of_a_ci(on, written(tmp_path))
    assert "newer commit" in result.messages[0]
    assert "set --sha" in result.messages[1]
    assert on.comments == on.statuses == []


@pytest.mark.parametrize(
    ("fail_on", "summary", "state"),
    [
        (Severity.ERROR, FOUND, StatusState.FAILURE),
        (Severity.ERROR, "0 errors, 5 warnings, 1 info", StatusState.SUCCESS),
        (Severity.WARNING, "0 errors, 5 warnings, 1 info", StatusState.FAILURE),
        (Severity.WARNING, "0 errors, 0 warnings, 1 info", StatusState.SUCCESS),
        (Severity.INFO, "0 errors, 0 warnings, 1 info", StatusState.FAILURE),
        (Severity.INFO, "no findings", StatusState.SUCCESS),
    ],
)
def test_the_status_is_that_of_the_check(
    tmp_path: Path, fail_on: Severity, summary: str, state: StatusState
) -> None:
    task = pull_request_comment.task(
        comment_line.args(written(tmp_path, summary=summary), fail_on=fail_on), github(tmp_path)
    )
    assert task.status
    assert (task.status.state, task.status.description) == (state, summary)


def test_comment_and_status_are_named_by_the_key(tmp_path: Path) -> None:
    report = written(tmp_path, key="fleet")
    task = pull_request_comment.task(comment_line.args(report), github(tmp_path))
    assert task.status
    assert (task.marker, task.status.name) == (markdown.marker("fleet"), "gitops-ds/fleet")
    task = pull_request_comment.task(
        comment_line.args(report, key="a b", status="mine"), github(tmp_path)
    )
    assert task.status
    assert (task.marker, task.status.name) == (markdown.marker("a b"), "mine")


def test_values_of_another_repository_or_forge_are_ignored(tmp_path: Path) -> None:
    environ = github(tmp_path)
    options = comment_line.args(written(tmp_path), project="acme/other", number=3)
    task = pull_request_comment.task(options, environ)
    assert (task.project, task.number, task.sha) == ("acme/other", 3, "")
    elsewhere = pull_request_comment.task(
        replace(options, forge="gitea", url="https://git.example"), environ
    )
    assert (elsewhere.url, elsewhere.number, elsewhere.sha) == ("https://git.example/api/v1", 3, "")
    with pytest.raises(errors.UsageError, match="must be the server's address"):
        pull_request_comment.task(replace(options, forge="gitea"), environ)


@pytest.mark.parametrize(
    ("more", "environ", "words"),
    [
        ({}, {}, "set --forge"),
        ({"forge": "github"}, {}, "set --forge"),
        ({"forge": "github", "project": "a/../b"}, {}, "write OWNER/NAME"),
        ({"forge": "github", "project": "a b"}, {}, "write OWNER/NAME"),
        ({"forge": "github", "project": "a/b"}, {}, "the commit is unknown"),
        ({"sha": "abc"}, ACTIONS, "the full id"),
        ({"sha": "\x1b[31m"}, ACTIONS, "the full id"),
        ({}, {**ACTIONS, "GITHUB_SHA": OTHER}, "but this job is about cccccccccccc"),
    ],
)
def test_missing_or_contradictory_options_are_reported(
    tmp_path: Path, more: dict[str, Any], environ: dict[str, str], words: str
) -> None:
    with pytest.raises(errors.UsageError, match=words) as refused:
        pull_request_comment.task(comment_line.args(written(tmp_path), **more), environ)
    assert "\x1b" not in str(refused.value)


def test_a_report_and_a_ci_without_a_commit(tmp_path: Path) -> None:
    options = comment_line.args(written(tmp_path, head=""), forge="github", project="a/b", number=7)
    with pytest.raises(errors.UsageError, match="set --sha"):
        pull_request_comment.task(options, {})
    assert pull_request_comment.task(replace(options, sha=HEAD), {}).sha == HEAD


def test_a_file_that_is_not_a_report_is_rejected_and_never_shown(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "secret").write_text("password=hunter2")
    (tmp_path / "big").write_bytes(b"x" * 100_000)
    for name in ("none", "pipe", "secret", "big", "."):
        with pytest.raises(errors.UsageError, match="--report") as refused:
            pull_request_comment.task(comment_line.args(str(tmp_path / name)), github(tmp_path))
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pull_request": 3}'])
def test_an_event_that_cannot_be_read_is_as_none(tmp_path: Path, text: str) -> None:
    environ = github(tmp_path)
    (tmp_path / "event.json").write_text(text)
    task = pull_request_comment.task(comment_line.args(written(tmp_path, head="b" * 12)), environ)
    assert (task.number, task.sha) == (7, "b" * 40)


def test_a_later_run_that_wrote_the_comment_is_left(tmp_path: Path) -> None:
    on = GitHub()
    done(on, comment_line.args(written(tmp_path)), on_github(tmp_path, GITHUB_RUN_ID="101"))
    result = done(
        on, comment_line.args(written(tmp_path, summary="no findings")), on_github(tmp_path)
    )
    assert "a later run" in result.messages[0]
    assert FOUND in on.comments[0].body


def test_a_broken_answer_is_not_a_crash(tmp_path: Path) -> None:
    on = GitHub()
    on.faults = [Fault(200, {}, "x"), Fault(200, {}, None)]
    result = done(on, comment_line.args(written(tmp_path)), on_github(tmp_path))
    assert "is not one of GitHub" in str(result.refused[0])
