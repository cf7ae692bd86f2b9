"""`gitops-ds explain`: who set this value?"""

from __future__ import annotations

from typing import Any

import click

from gitops_ds.cli import options


@click.command()
@click.argument("agent")
@click.argument("path", required=False, default="")
@options.directory
@options.option("--revision", help="A commit, branch or tag.")
@options.option(
    "--path",
    "--path-in-repository",
    "inside",
    default="",
    help="The directory inside the repository.",
)
@options.allow
@options.cluster_name
@options.option("--node", help="The name of a node: which variant runs there.")
@options.connection
@options.output("text", "json")
@options.common
def explain(**given: Any) -> int:
    """Print a parameter or manifest path of AGENT, and every file:line that set it, the winner
    first.
    """
    return options.run(_explain(given))


async def _explain(given: dict[str, Any]) -> int:
    from gitops_ds.client import connect
    from gitops_ds.model.objects import NODE, show_path
    from gitops_ds.pipeline import open_repository
    from gitops_ds.render.explain import explain as explained

    repository = open_repository.named(given["directory"], given["inside"], given["allowed"])
    snapshot = await open_repository.snapshot(repository, given["revision"])
    labels = None
    if given["node"]:
        async with connect.opened(
            connect.Connection(given["kubeconfig"], given["context"])
        ) as cluster:
            labels = dict(
                (await cluster.get(NODE, "", given["node"]))["metadata"].get("labels") or {}
            )
    told = explained(
        snapshot, given["agent"], given["path"], cluster=given["cluster"], node_labels=labels
    )
    if given["output"] == "json":
        places = [
            {
                "file": s.place.file,
                "line": s.place.line,
                "column": s.place.column,
                "path": show_path(s.path),
            }
            for s in told.set_by
        ]
        options.show_json(
            {
                "apiVersion": "gitops-ds.io/v1",
                "kind": "Explanation",
                "value": told.value,
                "setBy": places,
            }
        )
        return 0
    import orjson

    click.echo(orjson.dumps(told.value).decode())
    for setting in told.set_by:
        click.echo(f"  {setting.place}" + (f"  {show_path(setting.path)}" if setting.path else ""))
    return 0
