"""The commands that send requests to a service, with their options and output: `reconcile`;
`suspend` and `resume` of writes, while drift is still reported; `hold` and `release` of commits.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli.parameters import candidates, options
from gitops_ds.core.objects import short

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.cli.commands.service_requests import StateObject, Where
    from gitops_ds.core.cluster import Cluster, ClusterReader
    from gitops_ds.core.objects import Body

    Work = Callable[[Cluster, Where, StateObject], Awaitable[tuple[Body, str]]]


service = options.together(
    options.directory_of("The repository of the service"),
    options.option(
        "--id",
        "id",
        default="",
        help="The ID of the service's state, if a repository has several.",
    ),
    options.connection,
    options.output("text", "json"),
    options.common,
)


@dataclass(frozen=True, kw_only=True)
class ServiceArgs(options.ConnectionArgs, options.CommonArgs):
    """The service of a request, and the output."""

    directory: str | None
    id: str
    output: str


async def ask(args: ServiceArgs, work: Work) -> Body:
    """Runs the work on the selected state, and prints its message, or with `-o json` the
    requests.
    """
    from gitops_ds.checks.report import printable
    from gitops_ds.cli.commands import service_requests

    where = service_requests.Where(args.state_namespace, args.id, args.directory)
    async with args.open_for_writes() as cluster:
        target = await service_requests.find(cluster, where)
        body, words = await work(cluster, where, target)
    if args.output == "json":
        options.show_json(service_requests.as_json(target, body))
    else:
        click.echo(printable.block(words))
    return body


@dataclass(frozen=True, kw_only=True)
class ReconcileArgs(ServiceArgs):
    """The arguments and options of `gitops-ds reconcile`."""

    wait: bool
    timeout: float


@click.command()
@options.option("--wait", is_flag=True, help="Wait for the reconciliation and print its outcome.")
@options.option(
    "--timeout",
    type=options.DurationType(),
    default="2m",
    show_default=True,
    help="The time limit of --wait: 90s, 5m.",
)
@service
@options.typed(ReconcileArgs)
async def reconcile(args: ReconcileArgs) -> int:
    """Request a reconciliation now. With --wait, exits 1 if it failed or did not finish in time."""
    from gitops_ds.core import names

    async def work(cluster: Cluster, where: Where, target: StateObject) -> tuple[Body, str]:
        from gitops_ds.cli.commands import service_requests

        body, value = await service_requests.request(cluster, where, target.id)
        if not args.wait:
            return body, f"reconciliation of {target.id} requested"
        body = await service_requests.answered(cluster, where, target.id, value, args.timeout)
        outcome = str(body["metadata"]["annotations"].get(names.OUTCOME, ""))
        if not outcome.startswith("success") and (
            why := await _message_of(cluster, where, target.id)
        ):
            options.say(why, quiet=args.quiet)
        return body, outcome

    body = await ask(args, work)
    outcome = str(body["metadata"]["annotations"].get(names.OUTCOME, ""))
    return 1 if args.wait and not outcome.startswith("success") else 0


async def _message_of(cluster: ClusterReader, where: Where, id: str) -> str:
    """The message of the repository's status, empty without one."""
    from gitops_ds.core import errors
    from gitops_ds.deploy import source_status_store

    try:
        status = (await source_status_store.load_all(cluster, where.namespace, time.time())).get(id)
    except errors.ClusterError:
        return ""
    return status.message if status is not None else ""


def _reason(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    from gitops_ds.core import stated_reasons

    if flaw := stated_reasons.flaw(value):
        raise click.BadParameter(flaw)
    return value.strip()


reason = options.option(
    "--reason",
    default="",
    callback=_reason,
    metavar="TEXT",
    help="Why, in one line of at most 200 characters: status, get, the page and notifications "
    "show it until the end.",
)


@dataclass(frozen=True, kw_only=True)
class ResumeArgs(ServiceArgs):
    """The arguments and options of `gitops-ds resume`."""

    agent: str | None
    namespace: str


@dataclass(frozen=True, kw_only=True)
class SuspendArgs(ResumeArgs):
    """Those of `gitops-ds suspend`."""

    reason: str


@click.command()
@click.argument("agent", required=False, shell_complete=candidates.daemonsets)
@options.in_namespace
@reason
@service
@options.typed(SuspendArgs)
async def suspend(args: SuspendArgs) -> int:
    """Suspend all writes for the repository, or for one agent, until it is resumed; pending changes
    are still reported.
    """
    return await _suspend(args, suspended=True, reason=args.reason)


@click.command()
@click.argument("agent", required=False, shell_complete=candidates.daemonsets)
@options.in_namespace
@service
@options.typed(ResumeArgs)
async def resume(args: ResumeArgs) -> int:
    """Resume writes for the repository, or for one agent."""
    return await _suspend(args, suspended=False)


async def _suspend(args: ResumeArgs, *, suspended: bool, reason: str = "") -> int:
    if args.agent:
        return await _suspend_agent(args, args.agent, suspended=suspended, reason=reason)

    async def work(cluster: Cluster, where: Where, target: StateObject) -> tuple[Body, str]:
        from gitops_ds.cli.commands import service_requests

        done = await service_requests.suspend(
            cluster, where, target.id, suspended=suspended, reason=reason
        )
        words = done.words(suspended=suspended)
        return done.body, f"{words}: nothing is written" if suspended else words

    await ask(args, work)
    return 0


async def _suspend_agent(args: ResumeArgs, agent: str, *, suspended: bool, reason: str) -> int:
    from gitops_ds.cli.commands import service_requests
    from gitops_ds.core.objects import key_of

    async with args.open_for_writes() as cluster:
        done = await service_requests.suspend_agent(
            cluster, agent, args.namespace, suspended=suspended, reason=reason
        )
    if args.output == "json":
        key = key_of(done.body)
        named = {"namespace": key.namespace, "name": key.name}
        stated = {"suspendReason": reason} if reason else {}
        options.show_json(options.document("Steering", **named, suspended=suspended, **stated))
    else:
        words = done.words(suspended=suspended)
        click.echo(f"{words}: nothing is written to it" if suspended else words)
    return 0


@dataclass(frozen=True, kw_only=True)
class ReleaseArgs(ServiceArgs):
    """The arguments and options of `gitops-ds release`."""

    commit: str


@dataclass(frozen=True, kw_only=True)
class HoldArgs(ReleaseArgs):
    """Those of `gitops-ds hold`."""

    reason: str


@click.command()
@click.argument("commit")
@reason
@service
@options.typed(HoldArgs)
async def hold(args: HoldArgs) -> int:
    """Put a commit on hold: it is not applied, and the last good commit stays.

    A rollout of the commit that is in progress takes no further node.
    """
    from gitops_ds.deploy.pipeline import open_repository

    commit = await open_repository.commit_named(args.commit, args.directory)

    async def work(cluster: Cluster, where: Where, target: StateObject) -> tuple[Body, str]:
        from gitops_ds.cli.commands import held_rollouts, service_requests

        body = await service_requests.hold(cluster, where, target.id, commit, args.reason)
        rollouts = await held_rollouts.hold(cluster, target.id, commit, time.time(), args.reason)
        return body, f"{target.id}: commit {short(commit)} is on hold{rollouts.words}"

    await ask(args, work)
    return 0


@click.command()
@click.argument("commit")
@service
@options.typed(ReleaseArgs)
async def release(args: ReleaseArgs) -> int:
    """Release a commit that is on hold, whose rollout was halted, or that waits for other clusters.

    Exits 1 for any other commit.
    """
    from gitops_ds.deploy.pipeline import open_repository

    commit = await open_repository.commit_named(args.commit, args.directory)

    async def work(cluster: Cluster, where: Where, target: StateObject) -> tuple[Body, str]:
        from gitops_ds.cli.commands import held_rollouts, service_requests
        from gitops_ds.core import errors

        agents = await held_rollouts.release(cluster, target.id, commit)
        waits = await service_requests.is_waiting(cluster, where, target.id, commit, time.time())
        try:
            body = await service_requests.release(cluster, where, target.id, commit)
        except errors.Refused:
            if not agents and not waits:
                raise
            body = await service_requests.annotate(cluster, where, target.id, lambda _: {})
        if waits:
            body = await service_requests.release_waiting(cluster, where, target.id, commit)
        rollouts = f", rollout of {', '.join(map(str, agents))}" if agents else ""
        return body, f"{target.id}: commit {short(commit)} released{rollouts}"

    await ask(args, work)
    return 0
