"""`gitops-ds explain`: a value, and the files and lines that set it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli.parameters import candidates, formats, options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.core.sources.repository_limits import AllowedRenderers


_LONGEST = 8_000  # characters of a place and its path


@dataclass(frozen=True, kw_only=True)
class ExplainArgs(options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds explain`."""

    agent: str
    path: str
    directory: str | None
    revision: str | None
    inside: str
    allowed: AllowedRenderers | None
    cluster: str
    node: str | None
    output: formats.Output


@options.command(ExplainArgs)
@click.argument("agent", shell_complete=candidates.agents)
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
@options.option("--node", help="A node: the variant that runs on it.")
@options.connection
@formats.output("text", "json")
async def explain(args: ExplainArgs) -> int:
    """Print a parameter or manifest path of AGENT, and every file and line that sets it, the
    effective one first.
    """
    from gitops_ds.core.objects import NODE, show_path
    from gitops_ds.deploy.pipeline import open_repository
    from gitops_ds.source.render.explain import explain as explained

    repository = open_repository.named(args.directory, args.inside, args.allowed)
    snapshot = await open_repository.snapshot(repository, args.revision)
    labels = None
    if args.node:
        async with args.open_cluster() as cluster:
            labels = dict((await cluster.get(NODE, "", args.node))["metadata"].get("labels") or {})
    explanation = explained(
        snapshot, args.agent, args.path, cluster=args.cluster, node_labels=labels
    )
    if args.output == "json":
        places = [
            {
                "file": s.place.file,
                "line": s.place.line,
                "column": s.place.column,
                "path": show_path(s.path),
            }
            for s in explanation.set_by
        ]
        formats.show_json(formats.document("Explanation", value=explanation.value, setBy=places))
        return 0
    import orjson

    from gitops_ds.checks.report import printable

    click.echo(printable.block(orjson.dumps(explanation.value).decode()))
    for setting in explanation.set_by:
        path = f"  {show_path(setting.path)}" if setting.path else ""
        click.echo(f"  {printable.line(f'{setting.place}{path}', _LONGEST)}")
    return 0
