"""`gitops-ds comment`: a report as a comment of the pull request, and the commit status."""

from __future__ import annotations

import os

import click

from gitops_ds.cli.comment.arguments import CommentArgs
from gitops_ds.cli.parameters import candidates, options
from gitops_ds.forges.contract import ForgeKind


@options.command(CommentArgs)
@options.option(
    "--report",
    required=True,
    metavar="FILE",
    shell_complete=candidates.files,
    help="The file of `check -o json=FILE` (or markdown=FILE); `-`: stdin.",
)
@options.option(
    "--forge",
    type=click.Choice([kind.value for kind in ForgeKind]),
    help="The kind of forge; default: that of the CI.",
)
@options.option("--url", default="", help="The URL of the forge; default: that of the CI.")
@options.option("--project", default="", metavar="OWNER/NAME", help="The project on the forge.")
@options.option("--number", type=click.IntRange(1), default=None, help="The pull or merge request.")
@options.option("--sha", default="", help="The commit of the report.")
@options.option(
    "--key", default="", help="The key of the comment, if several; default: that of the report."
)
@options.option(
    "--status",
    default="",
    metavar="NAME",
    help="The name of the commit status; default: gitops-ds/KEY.",
)
@options.option(
    "--only", type=click.Choice(["comment", "status"]), help="Only the comment, or only the status."
)
@options.fail_on("The lowest severity for which the status is a failure.")
@options.time_limit("2m", "The time limit of the command.", least=1)
@options.option(
    "--allow-http",
    is_flag=True,
    help="Send the token over plain HTTP, for a server in your own network.",
)
@options.option(
    "--dry-run", is_flag=True, help="Print the requests without sending them; needs no token."
)
async def comment(args: CommentArgs) -> int:
    """Post or update one comment with a check's report, and set the commit status.

    The token is taken from the environment: GITOPS_DS_TOKEN, GITHUB_TOKEN, GITLAB_TOKEN,
    GITEA_TOKEN or FORGEJO_TOKEN.
    """
    from gitops_ds.cli.comment import pull_request_comment
    from gitops_ds.core import errors

    task = pull_request_comment.task(args, os.environ)
    if args.dry_run:
        click.echo("\n".join(pull_request_comment.plan(task)))
        return 0
    done = await pull_request_comment.carry_out(task, os.environ, args.timeout)
    for line in done.messages:
        click.echo(line)
    if done.refused:
        raise errors.ForgeError("; ".join(map(str, done.refused)))
    return 0
