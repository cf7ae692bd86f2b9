"""What a CI tells its jobs of forge, repository, pull request and commit. Pure: the environment is
an argument.

GitHub: https://docs.github.com/actions/reference/variables-reference; Gitea and Forgejo set the
same and their own mark. GitLab: https://docs.gitlab.com/ci/variables/predefined_variables/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gitops_ds.forges import requests
from gitops_ds.forges.requests import ForgeKind


@dataclass(frozen=True, slots=True)
class CiEnvironment:
    """Where a job runs; what is not known is empty (the forge: None).

    `sha` is the head of the pull request, not the merge commit that GitHub checks out. `branch` is
    `OWNER:BRANCH` where the pull request has to be looked for. `link` shows the run, and `run` are
    its numbers: a later run has greater ones.
    """

    kind: ForgeKind | None = None
    url: str = ""
    project: str = ""
    number: int = 0
    sha: str = ""
    branch: str = ""
    link: str = ""
    run: tuple[int, ...] = ()


def read(environ: Mapping[str, str], event: Mapping[str, Any]) -> CiEnvironment:
    """What the variables say, and the event behind GITHUB_EVENT_PATH (empty: there is none)."""
    if environ.get("GITHUB_REPOSITORY"):
        return _actions(environ, event)
    return _gitlab(environ) if environ.get("CI_API_V4_URL") else CiEnvironment()


def _actions(environ: Mapping[str, str], event: Mapping[str, Any]) -> CiEnvironment:
    forgejo = environ.get("FORGEJO_ACTIONS")
    kind = (
        ForgeKind.FORGEJO
        if forgejo
        else ForgeKind.GITEA
        if environ.get("GITEA_ACTIONS")
        else ForgeKind.GITHUB
    )
    of_pull = re.fullmatch(r"refs/pull/(\d+)/(?:merge|head)", environ.get("GITHUB_REF", ""))
    found = CiEnvironment(
        kind,
        environ.get("GITHUB_API_URL")
        or requests.api_address(kind, environ.get("GITHUB_SERVER_URL", "")),
        environ["GITHUB_REPOSITORY"],
        _number(_at(event, "pull_request", "number")) or (int(of_pull[1]) if of_pull else 0),
        head(environ, event),
        link=run_link(environ),
        run=_numbers(environ.get("GITHUB_RUN_ID"), environ.get("GITHUB_RUN_ATTEMPT")),
    )
    finished = event.get("workflow_run")
    return _after(found, finished) if isinstance(finished, Mapping) else found


def _after(found: CiEnvironment, finished: Mapping[str, Any]) -> CiEnvironment:
    """A job that runs when another workflow has ended, with rights that the other had not: it is
    about the other's commit.

    https://docs.github.com/actions/reference/events-that-trigger-workflows#workflow_run
    """
    pulls = finished.get("pull_requests")
    first = pulls[0] if isinstance(pulls, list) and pulls and isinstance(pulls[0], Mapping) else {}
    owner, branch = _at(finished, "head_repository", "owner", "login"), finished.get("head_branch")
    return CiEnvironment(
        found.kind,
        found.url,
        found.project,
        _number(first.get("number")),
        _commit(finished.get("head_sha")),
        f"{owner}:{branch}"
        if isinstance(owner, str) and isinstance(branch, str) and finished.get("event") != "push"
        else "",
        str(finished.get("html_url") or found.link),
        _numbers(finished.get("id"), finished.get("run_attempt")),
    )


def _gitlab(environ: Mapping[str, str]) -> CiEnvironment:
    return CiEnvironment(
        ForgeKind.GITLAB,
        environ["CI_API_V4_URL"],
        # A merge request from a fork may run in the fork; the notes are the target's.
        environ.get("CI_MERGE_REQUEST_PROJECT_ID") or environ.get("CI_PROJECT_ID", ""),
        _number(environ.get("CI_MERGE_REQUEST_IID")),
        head(environ, {}),
        link=run_link(environ),
        run=_numbers(environ.get("CI_PIPELINE_ID"), environ.get("CI_JOB_ID")),
    )


def checked_out(environ: Mapping[str, str]) -> str:
    """The commit whose files the job has: on GitHub that of a merge."""
    return environ.get("GITHUB_SHA") or environ.get("CI_COMMIT_SHA") or ""


def head(environ: Mapping[str, str], event: Mapping[str, Any]) -> str:
    """The commit that the job is about: the head of the pull request, else the one that is checked
    out.
    """
    of_pull = _at(event, "pull_request", "head", "sha") or environ.get(
        "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA"
    )
    return _commit(of_pull) or _commit(checked_out(environ))


def run_link(environ: Mapping[str, str]) -> str:
    """Where the run is shown."""
    run = environ.get("GITHUB_RUN_ID")
    return (
        f"{_home(environ)}/actions/runs/{run}"
        if run and environ.get("GITHUB_REPOSITORY")
        else environ.get("CI_JOB_URL", "")
    )


def files_link(environ: Mapping[str, str], sha: str) -> str:
    """Where the files of a commit are shown: the URL to which a name is appended."""
    if not sha:
        return ""
    if environ.get("GITHUB_REPOSITORY"):
        own = environ.get("GITEA_ACTIONS") or environ.get("FORGEJO_ACTIONS")
        return f"{_home(environ)}/{'src/commit' if own else 'blob'}/{sha}"
    project = environ.get("CI_PROJECT_URL")
    return f"{project}/-/blob/{sha}" if project else ""


def _home(environ: Mapping[str, str]) -> str:
    return (
        f"{environ.get('GITHUB_SERVER_URL') or 'https://github.com'}/{environ['GITHUB_REPOSITORY']}"
    )


def _at(document: Any, *path: str) -> Any:
    for step in path:
        document = document.get(step) if isinstance(document, Mapping) else None
    return document


def _commit(value: Any) -> str:
    return value if isinstance(value, str) and requests.is_commit(value) else ""


def _number(value: Any) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _numbers(*values: Any) -> tuple[int, ...]:
    """Those that are given, up to the first that is not."""
    found = [_number(value) for value in values]
    return tuple(found[: found.index(0)] if 0 in found else found)
