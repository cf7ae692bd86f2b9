"""The comment with a report on a pull request, and the status of its commit."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from gitops_ds import __version__
from gitops_ds.checks.report import comment_page, findings, markdown, printable
from gitops_ds.checks.report.comment_page import CommentPage
from gitops_ds.cli.comment import ci_event
from gitops_ds.cli.comment.arguments import CommentArgs
from gitops_ds.core import errors
from gitops_ds.core.finding import Severity
from gitops_ds.core.objects import short
from gitops_ds.core.values import replace
from gitops_ds.forges import ci_environment, forge_access
from gitops_ds.forges.ci_environment import CiEnvironment
from gitops_ds.forges.client import Clock, CommentChange, Forge
from gitops_ds.forges.contract import CommitStatus, ForgeKind, StatusState
from gitops_ds.forges.sticky_comment import Sticky

_PROJECT: Final = re.compile(r"[\w.-]+(/[\w.-]+)*")


class Task(msgspec.Struct, frozen=True):
    """The task. `sha` is the commit of the report; empty: the head of the pull request, if it
    matches the report.

    `number` is 0 if the pull request is looked up by `branch`, or does not exist. `status` is None
    to set no status.
    """

    kind: ForgeKind
    url: str
    project: str
    page: CommentPage
    marker: str
    sha: str = ""
    number: int = 0
    branch: str = ""
    run: tuple[int, ...] = ()
    comment: bool = True
    status: CommitStatus | None = None

    @property
    def name(self) -> str:
        """The pull request in messages."""
        return f"{self.project}{'!' if self.kind is ForgeKind.GITLAB else '#'}{self.number}"


class CommentResult(msgspec.Struct, frozen=True):
    """The results as text, and the refused parts."""

    messages: tuple[str, ...]
    refused: tuple[errors.ForgeError, ...]


def task(args: CommentArgs, environ: Mapping[str, str]) -> Task:
    """The task by options, environment and report. Raises UsageError for missing or contradictory
    values.
    """
    page = _page(args.report)
    around = _around(args, ci_environment.read(environ, ci_event.event(environ)))
    if around.kind is None or not around.project:
        raise errors.UsageError(
            "no CI environment: set --forge, --url, --project, --number and --sha"
        )
    if not _PROJECT.fullmatch(around.project) or {".", ".."} & {*around.project.split("/")}:
        raise errors.UsageError(f"--project {printable.line(around.project)}: write OWNER/NAME")
    sha = _sha(args, around, page)
    if not sha and not around.number:
        raise errors.UsageError("the commit is unknown: set --number, or --sha with the full id")
    status = None
    if args.only != "comment":
        state = StatusState.FAILURE if page.loud(Severity(args.fail_on)) else StatusState.SUCCESS
        counts = findings.severity_counts(page.count) if any(page.count.values()) else "no findings"
        pipeline = str(around.run[0]) if around.kind is ForgeKind.GITLAB and around.run else ""
        status = CommitStatus(
            args.status or f"gitops-ds/{args.key or page.key}",
            state,
            counts,
            around.link,
            pipeline,
        )
    return Task(
        around.kind,
        forge_access.address(around.kind, around.url, allow_http=args.allow_http),
        around.project,
        page,
        markdown.marker(args.key or page.key),
        sha,
        around.number,
        "" if around.number else around.branch,
        around.run,
        args.only != "status",
        status,
    )


def plan(task: Task) -> list[str]:
    """The requests as text, without sending them."""
    commit = short(task.sha) or task.page.head
    lines = [f"forge: {forge_access.api(task.kind).name} at {task.url}"]
    if task.comment and (task.number or task.branch):
        where = (
            task.name
            if task.number
            else f"the pull request of {printable.line(task.branch)} in {task.project}"
        )
        lines.append(
            f"would comment on {where} while it is at {commit}: {task.marker}, "
            f"{len(task.page.text.encode())} bytes"
        )
    elif task.comment:
        lines.append("no pull request: no comment")
    if task.status:
        lines.append(f"would set {_status_words(task.status)} of {commit}")
    return lines


async def carry_out(
    task: Task, environ: Mapping[str, str], patience: float, clock: Clock | None = None
) -> CommentResult:
    """Performs the task in `patience` seconds: as far as possible, even if a part was refused."""
    there = forge_access.ForgeAccess(
        task.kind, task.url, forge_access.token(task.kind, environ), task.project
    )
    messages: list[str] = []
    refused: list[errors.ForgeError] = []
    async with Forge(there, patience, f"gitops-ds/{__version__}", clock) as forge:
        for step in (_comment, _status):
            try:
                task, words = await step(forge, task)
                messages.append(words)
            except errors.ForgeError as error:
                refused.append(error)
    return CommentResult(tuple(filter(None, messages)), tuple(refused))


async def _comment(forge: Forge, task: Task) -> tuple[Task, str]:
    """The task with its commit, and the result of the comment."""
    if not task.number and task.branch and task.comment:
        task = replace(task, number=await forge.find(task.branch, task.sha))
    if not task.number:
        return task, "no pull request is at this commit: no comment" if task.comment else ""
    if not task.comment and task.sha:
        return task, ""
    head = await forge.head(task.number)
    if not task.sha and head.startswith(task.page.head):
        task = replace(task, sha=head)
    if not task.comment:
        return task, ""
    if head != task.sha:
        return (
            task,
            f"{task.name} has the newer commit {short(head)}, whose report gets the comment",
        )
    done = await forge.comment(task.number, Sticky(task.marker, task.page.text, task.sha, task.run))
    match done:
        case CommentChange.NEWER:
            return (
                task,
                f"{task.name} has the report of a later run for this commit: it is unchanged",
            )
        case CommentChange.CREATED | CommentChange.UPDATED | CommentChange.UNCHANGED:
            return task, f"comment {done.value} on {task.name}"


async def _status(forge: Forge, task: Task) -> tuple[Task, str]:
    if task.status is None:
        return task, ""
    if not task.sha:
        return (
            task,
            (f"no status is set: {task.page.head} is an abbreviated commit id; set --sha"),
        )
    await forge.status(task.sha, task.status)
    return task, f"{_status_words(task.status)} of {short(task.sha)}"


def _status_words(status: CommitStatus) -> str:
    return f"status {status.name}: {status.state.value} ({status.description})"


def _around(args: CommentArgs, environment: CiEnvironment) -> CiEnvironment:
    """The values of the CI for unset options, without those for another forge or repository."""
    kind = ForgeKind(args.forge) if args.forge else None
    if kind and kind is not environment.kind:
        environment = CiEnvironment(kind, link=environment.link)
    if args.project and args.project != environment.project:
        environment = replace(environment, number=0, sha="", branch="")
    return replace(
        environment,
        url=args.url or environment.url,
        project=args.project or environment.project,
        number=args.number or environment.number,
    )


def _sha(args: CommentArgs, around: CiEnvironment, page: CommentPage) -> str:
    if args.sha:
        if not forge_access.is_commit_id(args.sha):
            raise errors.UsageError(
                f"--sha {printable.line(args.sha)}: use the full id of the commit"
            )
        return args.sha
    if around.sha and not around.sha.startswith(page.head):
        raise errors.UsageError(
            f"{args.report} is the report of {page.head}, but this job is about "
            f"{short(around.sha)}: "
            "use the report of that commit, or set --sha"
        )
    if not around.sha and not page.head:
        raise errors.UsageError("neither the report nor the CI has the commit: set --sha")
    return around.sha


def _page(name: str) -> CommentPage:
    """The page of a report: rendered here from a JSON report, because the page of another job is
    untrusted.
    """
    most = comment_page.MOST + 1
    try:
        data = sys.stdin.buffer.read(most) if name == "-" else ci_event.read(name, most)
        return comment_page.validated(
            comment_page.rendered(data, __version__).encode() if data.lstrip()[:1] == b"{" else data
        )
    except OSError as error:
        raise errors.UsageError(f"--report {name}: {error.strerror}") from None
    except ValueError as error:
        raise errors.UsageError(
            f"--report {name}: {error}; write it with `gitops-ds check -o json=FILE`, or `-o "
            "markdown=FILE`"
        ) from None
