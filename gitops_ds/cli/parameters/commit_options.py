"""Options and output of the commands that write a commit: printed, or with `--push` pushed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli.parameters import formats, options
from gitops_ds.core.objects import short
from gitops_ds.forges.contract import ForgeKind

if TYPE_CHECKING:
    from gitops_ds.cli.commits.git_commit import Proposal, Proposed
    from gitops_ds.service.git.forge_discovery import NamedForge

branch = options.option(
    "--branch",
    help="The branch to push to; default: the checked-out branch, or the server's default.",
)
written = options.together(
    branch,
    options.option("--reason", default="", help="The reason, for the commit message."),
    options.option(
        "--author",
        metavar="'NAME <MAIL>'",
        help="The author of the commit; default: Git's user.name and user.email.",
    ),
    options.option(
        "-s",
        "--signoff",
        is_flag=True,
        help="Add a Signed-off-by line to the message, as git commit --signoff; default: "
        "format.signOff of Git.",
    ),
)
proposal = options.together(
    options.option("--push", is_flag=True, help="Push the commit to the branch."),
    options.option(
        "--print", "only_print", is_flag=True, help="Print the commit only (the default)."
    ),
    written,
)

pull_request = options.together(
    options.option(
        "--pull-request",
        is_flag=True,
        help="Open a pull request; with --push only if the branch rejects the push.",
    ),
    options.option(
        "--forge",
        type=click.Choice([kind.value for kind in ForgeKind]),
        help="The kind of forge; default: by host name.",
    ),
    options.option(
        "--url", default="", help="The URL of the forge; default: that of the repository."
    ),
    options.option(
        "--project",
        default="",
        metavar="OWNER/NAME",
        help="The project on the forge; default: from the URL of the repository.",
    ),
    options.option(
        "--allow-http",
        is_flag=True,
        help="Send the token over plain HTTP, for a server in your own network.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class OutputArgs(options.CommonArgs):
    """The options of the output of a commit."""

    push: bool
    output: formats.Output


@dataclass(frozen=True, kw_only=True)
class CommitArgs(OutputArgs):
    """The options of a command that writes a commit."""

    only_print: bool
    branch: str | None
    reason: str
    author: str | None
    signoff: bool

    def proposal(self, forge: NamedForge | None = None) -> Proposal:
        """The commit to write; with a forge a pull request. Raises UsageError for contradictory
        options.
        """
        from gitops_ds.cli.commits.git_commit import Proposal

        if (self.push or forge) and self.only_print:
            raise click.UsageError("--print excludes --push and --pull-request")
        return Proposal(self.branch, self.push, self.author, forge, self.signoff)


@dataclass(frozen=True, kw_only=True)
class PullRequestArgs:
    """The pull request of a command that writes a commit."""

    pull_request: bool
    forge: str | None
    url: str
    project: str
    allow_http: bool

    def named_forge(self) -> NamedForge | None:
        """The forge of the pull request; None without `--pull-request`."""
        from gitops_ds.service.git import forge_discovery

        if not self.pull_request:
            return None
        kind = ForgeKind(self.forge) if self.forge else None
        return forge_discovery.NamedForge(kind, self.url, self.project, self.allow_http)


def show(args: OutputArgs, kind: str, done: Proposed, where: str, **more: Any) -> None:
    """Prints the commit as a patch, or a line about its push; with `-o json` a document of that
    kind, with `more` in it.
    """
    if args.output == "json":
        pushed = args.push and not done.pull_request
        link = {"pullRequest": done.pull_request} if done.pull_request else {}
        fields = {"commit": done.commit, **more, "pushed": pushed, "branch": done.branch, **link}
        formats.show_json(formats.document(kind, **fields))
    elif done.pull_request:
        click.echo(f"pull request for {short(done.commit)} into {done.branch}: {done.pull_request}")
    elif args.push:
        click.echo(f"pushed {short(done.commit)} to {done.branch} of {where}")
    else:
        click.echo(done.patch, nl=False)
        options.say(f"not pushed; --push sends it to {done.branch}", quiet=args.quiet)
