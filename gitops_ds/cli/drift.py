"""`gitops-ds drift`: what somebody changed in the cluster, and the commit that takes it into Git."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli import commit_options, options

if TYPE_CHECKING:
    from gitops_ds.model.change import Drifted
    from gitops_ds.model.objects import Key


@click.command()
@click.argument("name", required=False)
@options.option("--push", is_flag=True, help="Push the commit that takes the change into Git.")
@options.option("--print", "only_print", is_flag=True, help="Show that commit.")
@options.option(
    "--branch",
    help="The branch to push to; default: the one that is checked out, or the server's default.",
)
@options.option("--reason", default="", help="Why, for the message.")
@options.option(
    "--author",
    metavar="'NAME <MAIL>'",
    help="Who writes the commit; default: Git's user.name and user.email.",
)
@options.option(
    "--signoff",
    is_flag=True,
    help="End the message in your Signed-off-by line, as git commit --signoff does.",
)
@options.option("--exit-code", is_flag=True, help="Exit 1 when something was changed.")
@options.written_to
@options.connection
@options.output("text", "json")
@options.common
def drift(**given: Any) -> int:
    """Show what was changed in the cluster, and by whom; with --print or --push write the commit
    that keeps it.
    """
    if (given["push"] or given["only_print"]) and not given["name"]:
        raise click.UsageError("say of which DaemonSet: ds/NAME")
    return options.run(_drift(given))


async def _drift(given: dict[str, Any]) -> int:
    from gitops_ds.client import connect
    from gitops_ds.commands import apply, drift_commit
    from gitops_ds.fleet import agents
    from gitops_ds.pipeline import open_repository

    named = open_repository.named(given["directory"], given["path"], given["allowed"])
    connection = connect.Connection(given["kubeconfig"], given["context"], given["state_namespace"])
    target = apply.ApplyTarget(given["cluster"], given["namespace"], connection)
    found = await drift_commit.look(named, target)
    if given["name"]:
        short = agents.named(given["name"])
        space = given["namespace"]
        found = {
            key: one
            for key, one in found.items()
            if key.is_daemonset and key.name == short and space in ("", key.namespace)
        }
    if given["push"] or given["only_print"]:
        ((key, one),) = found.items() if len(found) == 1 else (_nothing(given["name"], found),)
        done = await drift_commit.take(
            named,
            key,
            one,
            drift_commit.DriftCommitOptions(target, given["reason"], commit_options.asked(given)),
        )
        commit_options.show(given, "Drift", done, named.display)
        return 0
    _show(found, given)
    return 1 if given["exit_code"] and found else 0


def _nothing(name: str, found: Mapping[Key, Drifted]) -> tuple[Key, Drifted]:
    from gitops_ds import errors

    if found:
        spaces = ", ".join(key.namespace for key in found)
        raise errors.UsageError(f"{name} was changed in the namespaces {spaces}: say which with -n")
    raise errors.Refused(
        f"nobody changed {name} since it was applied: there is nothing to take into Git"
    )


def _show(found: Mapping[Key, Drifted], given: dict[str, Any]) -> None:
    from gitops_ds.model.objects import show_path
    from gitops_ds.plan import drift
    from gitops_ds.redaction import objects

    if given["output"] == "json":
        items = [
            {
                "object": {"kind": key.kind, "namespace": key.namespace, "name": key.name},
                **drift.as_json(one),
            }
            for key, one in found.items()
        ]
        options.show_json({"apiVersion": "gitops-ds.io/v1", "kind": "Drift", "items": items})
        return
    for key, one in found.items():
        click.echo(f"{key} was {drift.words(one)}")
        for change in (objects.field(key, field) for field in one.fields):
            click.echo(
                f"  {show_path(change.path)}: {change.new!r} in Git, {change.old!r} in the cluster"
            )
    if not found:
        options.say("nothing was changed in the cluster", quiet=given["quiet"])
