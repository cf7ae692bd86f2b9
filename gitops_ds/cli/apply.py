"""`gitops-ds apply`: one pass, from a commit to the cluster."""

from __future__ import annotations

from typing import Any

import click

from gitops_ds.cli import options


@click.command()
@options.repository
@options.cluster_name
@options.namespace
@options.connection
@options.option("--prune/--no-prune", default=False, help="Also delete what left Git, within the guards.")
@options.option("--adopt", is_flag=True, help="Take over objects of other tools.")
@options.option("--force-conflicts", is_flag=True, help="Win fields that others own.")
@options.option("--dry-run", is_flag=True, help="Only show the plan.")
@options.option("--wait", is_flag=True, help="Return when every rollout is done.")
@options.option("--timeout", default=300.0, show_default=True, help="Seconds to wait, for --wait and for agents others depend on.")
@options.option("--approve", metavar="HASH", default="", help="The hash of a plan that may delete more than the guards allow.")
@options.output("text", "json")
@options.common
def apply(**given: Any) -> int:
    """Fetch, check, plan and apply a commit. Exits 1 when something that Git asks for was refused."""
    return options.run(_apply(given))


async def _apply(given: dict[str, Any]) -> int:
    from gitops_ds.app import clusters, passes, repositories, waiting
    from gitops_ds.controller import deploy
    from gitops_ds.model.deployment import Applied, NotApplied
    from gitops_ds.model.record import Record
    from gitops_ds.plan import prune, show

    repository = repositories.named(given["repository"] or given["directory"], given["path"])
    snapshot = await repositories.snapshot(repository, given["revision"], committed=True)
    connection = clusters.Connection(given["kubeconfig"], given["context"], given["state_namespace"])
    target = passes.Target(given["cluster"], given["namespace"], connection)
    guards = prune.Guards(prune=given["prune"])
    asked = deploy.Asked(
        guards,
        given["adopt"],
        given["force_conflicts"],
        approved=given["approve"],
        patience=given["timeout"],
        go_back=given["revision"] is not None,
    )
    text = given["output"] == "text"

    def emit(record: Record) -> None:
        if isinstance(record, Applied):
            if text:
                click.echo(f"{record.change.operation.value}d {record.change.key}")
            for warning in record.warnings:
                options.say(f"warning: {record.change.key}: {warning}", quiet=given["quiet"])
        elif isinstance(record, NotApplied):
            options.say(f"not applied: {record.refusal.message}")

    if given["dry_run"]:
        made = await passes.plan(repository, snapshot, target, asked)
        click.echo(show.as_text(made), nl=False) if text else options.show_json(show.as_json(made))
        return 0
    made, ended = await passes.apply(repository, snapshot, target, asked, emit)
    if text:
        for refusal in made.refusals:
            options.say(f"not applied: {refusal.message}")
        unchanged = len(made.changes) - len(made.writes)
        click.echo(f"commit {(made.commit or '')[:12]}: {ended.writes} written, {unchanged} unchanged")
    else:
        options.show_json(show.as_json(made))
    if deploy.refusals_that_fail(ended.refusals):
        return 1
    if given["wait"]:
        facts = passes.prepared(snapshot, target).bundle.cluster
        return await waiting.for_rollouts(
            connection, facts, made, given["timeout"], lambda line: options.say(line, quiet=given["quiet"])
        )
    return 0
