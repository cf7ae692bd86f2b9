"""Forge, repository, pull request and commit of a CI job, from its environment. Pure: the
environment is an argument.

GitHub: https://docs.github.com/actions/reference/variables-reference; Gitea and Forgejo set the
same and an additional variable. GitLab: https://docs.gitlab.com/ci/variables/predefined_variables/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from gitops_ds.forges import forge_access
from gitops_ds.forges.contract import ForgeKind


class CiEnvironment(msgspec.Struct, frozen=True):
    """The job's context; unknown values are empty (the forge: None).

    `sha` is the head of the pull request, not the merge commit that GitHub checks out. `branch` is
    `OWNER:BRANCH` if the number of the pull request must be searched. `link` is the run's web page,
    `run` its numbers, which increase from run to run.
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
    """The context from the variables and the event in GITHUB_EVENT_PATH (empty: no event)."""
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
    context = CiEnvironment(
        kind,
        environ.get("GITHUB_API_URL")
        or forge_access.api_address(kind, environ.get("GITHUB_SERVER_URL", "")),
        environ["GITHUB_REPOSITORY"],
        _number(_at(event, "pull_request", "number")) or (int(of_pull[1]) if of_pull else 0),
        head(environ, event),
        link=run_link(environ),
        run=_numbers(environ.get("GITHUB_RUN_ID"), environ.get("GITHUB_RUN_ATTEMPT")),
    )
    workflow_run = event.get("workflow_run")
    if not isinstance(workflow_run, Mapping):
        return context
    return _of_workflow_run(context, workflow_run)


def _of_workflow_run(job: CiEnvironment, run: Mapping[str, Any]) -> CiEnvironment:
    """The context of a job started by the end of another workflow, with more permissions: its
    subject is the other workflow's commit.

    https://docs.github.com/actions/reference/events-that-trigger-workflows#workflow_run
    """
    pulls = run.get("pull_requests")
    first = pulls[0] if isinstance(pulls, list) and pulls and isinstance(pulls[0], Mapping) else {}
    owner, branch = _at(run, "head_repository", "owner", "login"), run.get("head_branch")
    return CiEnvironment(
        job.kind,
        job.url,
        job.project,
        _number(first.get("number")),
        _commit(run.get("head_sha")),
        f"{owner}:{branch}"
        if isinstance(owner, str) and isinstance(branch, str) and run.get("event") != "push"
        else "",
        str(run.get("html_url") or job.link),
        _numbers(run.get("id"), run.get("run_attempt")),
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
    """The commit that is checked out: on GitHub the merge commit."""
    return environ.get("GITHUB_SHA") or environ.get("CI_COMMIT_SHA") or ""


def head(environ: Mapping[str, str], event: Mapping[str, Any]) -> str:
    """The head of the pull request, else the commit that is checked out."""
    of_pull = _at(event, "pull_request", "head", "sha") or environ.get(
        "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA"
    )
    return _commit(of_pull) or _commit(checked_out(environ))


def run_link(environ: Mapping[str, str]) -> str:
    """The web page of the run."""
    run = environ.get("GITHUB_RUN_ID")
    return (
        f"{_home(environ)}/actions/runs/{run}"
        if run and environ.get("GITHUB_REPOSITORY")
        else environ.get("CI_JOB_URL", "")
    )


def files_link(environ: Mapping[str, str], sha: str) -> str:
    """The web page of a commit's files: a URL to append a file's path to."""
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
    return value if isinstance(value, str) and forge_access.is_commit_id(value) else ""


def _number(value: Any) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _numbers(*values: Any) -> tuple[int, ...]:
    """The leading values that are numbers."""
    numbers = [_number(value) for value in values]
    return tuple(numbers[: numbers.index(0)] if 0 in numbers else numbers)
