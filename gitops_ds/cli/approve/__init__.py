"""`gitops-ds approve`: approves a plan that exceeds the guards, or a stage of a rollout."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gitops_ds.cli import requests
from gitops_ds.cli.parameters import candidates, commit_options, formats, options

# as fleet.agents.KIND_WORDS
_AGENTS = ("ds/", "daemonset/", "daemonsets/", "ds.apps/", "daemonset.apps/", "daemonsets.apps/")


def _what(_: click.Context, __: click.Parameter, value: str) -> str:
    return value if value.startswith(_AGENTS) else options.plan_hash(value)


@dataclass(frozen=True, kw_only=True)
class ApproveArgs(commit_options.OutputArgs, requests.ServiceArgs):
    """The arguments and options of `gitops-ds approve`."""

    what: str
    stage: str
    namespace: str
    hash: str
    commit: bool
    branch: str | None

    @property
    def request(self) -> tuple[str, str, str, str]:
        """The stage that is approved, and the hash of its target."""
        return self.what, self.stage, self.namespace, self.hash


@options.command(ApproveArgs)
@click.argument(
    "what", metavar="HASH|ds/NAME", callback=_what, shell_complete=candidates.daemonsets
)
@click.argument("stage", required=False, default="")
@options.in_namespace
@options.option(
    "--hash", default="", help="Approve only if the target of the rollout has this hash."
)
@options.option(
    "--commit",
    is_flag=True,
    help="Approve by a signed, empty commit, for the approvers of the repository.",
)
@options.option("--push", is_flag=True, help="Push the commit to the branch.")
@commit_options.branch
@requests.service
async def approve(args: ApproveArgs) -> int:
    """Approve the plan with this hash, and no other; or STAGE of the rollout of ds/NAME, of the
    present target and no other.
    """
    is_stage = args.what.startswith(_AGENTS)
    if is_stage is not bool(args.stage):
        raise click.UsageError("write a HASH alone, or ds/NAME and a STAGE")
    if not is_stage and (args.hash or args.commit):
        raise click.UsageError("--hash and --commit are for a STAGE")
    if not args.commit and (args.push or args.branch):
        raise click.UsageError("--push and --branch need --commit")
    if args.commit:
        return await _commit_approval(args)
    return await (_approve_stage(args) if is_stage else _approve(args))


async def _approve_stage(args: ApproveArgs) -> int:
    from gitops_ds.cli.approve import rollout_approvals
    from gitops_ds.core.objects import short

    async with args.open_for_writes() as cluster:
        approval = await rollout_approvals.approve(cluster, *args.request)
    if args.output == "json":
        fields = {
            "namespace": approval.daemonset.namespace,
            "name": approval.daemonset.name,
            "stage": approval.stage,
            "target": approval.target.revision,
            "hash": approval.target.hash,
            "commit": approval.target.commit,
        }
        formats.show_json(formats.document("StageApproval", **fields))
    else:
        commit = short(approval.target.commit)
        click.echo(f"{approval.daemonset}: stage {approval.stage} of commit {commit} approved")
    return 0


async def _commit_approval(args: ApproveArgs) -> int:
    from gitops_ds.cli.approve import rollout_approvals
    from gitops_ds.cli.commits import git_commit
    from gitops_ds.cli.commits.git_commit import Proposal
    from gitops_ds.deploy.pipeline import open_repository

    async with args.open_cluster() as cluster:
        stage = await rollout_approvals.waiting(cluster, *args.request)
    proposal = Proposal(args.branch, args.push)
    target = await git_commit.on_server(open_repository.named(args.directory), proposal)
    done = await rollout_approvals.commit_approval(target.repository, target.proposal, stage)
    where = target.repository.display
    commit_options.show(args, "ApprovalCommit", done, where, stage=stage.stage)
    return 0


async def _approve(args: ApproveArgs) -> int:
    from gitops_ds.cli.requests import service_requests
    from gitops_ds.core import names

    async with requests.selected(args) as (cluster, target):
        service_requests.refuse_commit(target.state, args.what)
        approval = {names.APPROVE: args.what}
        body = await service_requests.annotate(cluster, target, lambda _: approval)
    requests.show(args, target, body, f"{target.id}: plan {args.what} approved")
    return 0
