"""Options and output of the commands that write a commit: shown, unless it shall be pushed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli import options

if TYPE_CHECKING:
    from gitops_ds.commands.git_commit import Proposal, Proposed

proposal = options.together(
    options.option("--push", is_flag=True, help="Push the commit to the branch."),
    options.option(
        "--print", "only_print", is_flag=True, help="Only show the commit (the default)."
    ),
    options.option(
        "--branch",
        help="The branch to push to; default: the one that is checked out, or the server's "
        "default.",
    ),
    options.option("--reason", default="", help="Why, for the message."),
    options.option(
        "--author",
        metavar="'NAME <MAIL>'",
        help="Who writes the commit; default: Git's user.name and user.email.",
    ),
    options.option(
        "--signoff",
        is_flag=True,
        help="End the message in your Signed-off-by line, as git commit --signoff does.",
    ),
)

pull_request = options.together(
    options.option(
        "--pull-request",
        is_flag=True,
        help="Open a pull request; with --push only where the branch refuses the push.",
    ),
    options.option(
        "--forge",
        type=click.Choice(["github", "gitlab", "gitea", "forgejo"]),
        help="Default: by the host's name.",
    ),
    options.option(
        "--url", default="", help="The forge's address; default: that of the repository."
    ),
    options.option(
        "--project",
        default="",
        metavar="OWNER/NAME",
        help="The repository there; default: as in its address.",
    ),
    options.option(
        "--allow-http",
        is_flag=True,
        help="Send the token over http, to a server of your own network.",
    ),
)


def asked(given: dict[str, Any]) -> Proposal:
    """What the options say. Raises UsageError where they contradict each other."""
    from gitops_ds.commands.git_commit import Proposal
    from gitops_ds.forges.contract import ForgeKind
    from gitops_ds.service import forge_discovery

    if (given["push"] or given.get("pull_request")) and given["only_print"]:
        raise click.UsageError("--print goes neither with --push nor with --pull-request")
    forge = None
    if given.get("pull_request"):
        kind = ForgeKind(given["forge"]) if given["forge"] else None
        forge = forge_discovery.NamedForge(
            kind, given["url"], given["project"], given["allow_http"]
        )
    return Proposal(given["branch"], given["push"], given["author"], forge, given["signoff"])


def show(given: dict[str, Any], kind: str, done: Proposed, where: str, **more: Any) -> None:
    """The commit as a patch, or a line about its push; with `-o json` a document of that kind, with
    `more` in it.
    """
    if given["output"] == "json":
        pushed = given["push"] and not done.pull_request
        link = {"pullRequest": done.pull_request} if done.pull_request else {}
        told = {"commit": done.commit, **more, "pushed": pushed, "branch": done.branch, **link}
        options.show_json({"apiVersion": "gitops-ds.io/v1", "kind": kind, **told})
    elif done.pull_request:
        click.echo(f"pull request for {done.commit[:12]} into {done.branch}: {done.pull_request}")
    elif given["push"]:
        click.echo(f"pushed {done.commit[:12]} to {done.branch} of {where}")
    else:
        click.echo(done.patch, nl=False)
        options.say(f"not pushed; --push sends it to {done.branch}", quiet=given["quiet"])
