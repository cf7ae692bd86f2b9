"""`gitops-ds render`, the manifests of a repository, and `explain`, the sources of a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli.parameters import candidates, options
from gitops_ds.core.values import replace

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.core.sources.repository_limits import AllowedRenderers


@dataclass(frozen=True, kw_only=True)
class RenderArgs(options.RepositoryArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds render`."""

    agents: tuple[str, ...]
    cluster: str
    namespace: str
    show_secrets: bool
    output: str


@click.command()
@options.repository
@options.option(
    "--agent", "agents", multiple=True, shell_complete=candidates.agents, help="Only these agents."
)
@options.cluster_name
@options.namespace
@options.option(
    "--show-secrets", is_flag=True, help="Also print Secrets, and secret values in JSON."
)
@options.output("yaml", "json")
@options.common
@options.typed(RenderArgs)
async def render(args: RenderArgs) -> int:
    """Print the rendered manifests, for example for `kubectl apply -f -`."""
    from gitops_ds.core.redaction import report
    from gitops_ds.deploy.pipeline import open_repository
    from gitops_ds.source.render import bundle as rendering
    from gitops_ds.yaml import writer

    repository = args.repository_ref()
    snapshot = await open_repository.snapshot(repository, args.revision)
    bundle = rendering.render(snapshot, cluster=args.cluster, namespace=args.namespace)
    if args.agents:
        agents = set(rendering.agents(snapshot))
        if missing := sorted(set(args.agents) - agents):
            raise click.UsageError(
                f"--agent {missing[0]}: the repository has "
                f"{', '.join(sorted(agents)) or 'no agents'}"
            )
        chosen = {
            key: manifest
            for key, manifest in bundle.manifests.items()
            if manifest.agent in args.agents
        }
        bundle = replace(bundle, manifests=chosen)
    if args.output == "json":
        from gitops_ds.core.redaction import objects

        bodies = [manifest.body for manifest in bundle.manifests.values()]
        items = bodies if args.show_secrets else [objects.body(body) for body in bodies]
        options.show_json({"apiVersion": "v1", "kind": "List", "items": items})
    else:
        click.echo(writer.as_yaml(bundle, secrets=args.show_secrets), nl=False)
    refused = [finding for finding in bundle.findings if finding.refused]
    for finding in refused:
        options.say(report.line_of(finding))
    return 1 if refused else 0


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
    output: str


@click.command()
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
@options.output("text", "json")
@options.common
@options.typed(ExplainArgs)
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
        options.show_json(options.document("Explanation", value=explanation.value, setBy=places))
        return 0
    import orjson

    from gitops_ds.checks.report import printable

    click.echo(printable.block(orjson.dumps(explanation.value).decode()))
    for setting in explanation.set_by:
        path = f"  {show_path(setting.path)}" if setting.path else ""
        click.echo(f"  {printable.line(f'{setting.place}{path}', _LONGEST)}")
    return 0
