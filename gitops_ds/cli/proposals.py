"""Options and output of the commands that write a commit: shown, unless it shall be pushed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli import options

if TYPE_CHECKING:
    from gitops_ds.app.proposing import Proposal, Proposed

proposal = options.together(
    options.option("--push", is_flag=True, help="Push the commit to the branch."),
    options.option("--print", "only_print", is_flag=True, help="Only show the commit (the default)."),
    options.option("--branch", help="The branch to push to; default: the one that is checked out, or the server's default."),
    options.option("--reason", default="", help="Why, for the message."),
    options.option("--author", metavar="'NAME <MAIL>'", help="Who writes the commit; default: Git's user.name and user.email."),
)


def asked(given: dict[str, Any]) -> Proposal:
    """What the options say. Raises UsageError where they contradict each other."""
    from gitops_ds.app.proposing import Proposal

    if given["push"] and given["only_print"]:
        raise click.UsageError("--push and --print exclude each other")
    return Proposal(given["branch"], given["push"], given["author"])


def show(given: dict[str, Any], kind: str, done: Proposed, where: str, **more: Any) -> None:
    """The commit as a patch, or a line about its push; with `-o json` a document of that kind, with `more` in it."""
    if given["output"] == "json":
        told = {"commit": done.commit, **more, "pushed": given["push"], "branch": done.branch}
        options.show_json({"apiVersion": "gitops-ds.io/v1", "kind": kind, **told})
    elif given["push"]:
        click.echo(f"pushed {done.commit[:12]} to {done.branch} of {where}")
    else:
        click.echo(done.patch, nl=False)
        options.say(f"not pushed; --push sends it to {done.branch}", quiet=given["quiet"])
