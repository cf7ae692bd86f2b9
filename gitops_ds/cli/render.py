"""`gitops-ds render`: the manifests of a repository."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gitops_ds.cli.parameters import candidates, formats, options
from gitops_ds.core.values import replace


@dataclass(frozen=True, kw_only=True)
class RenderArgs(options.RepositoryArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds render`."""

    agents: tuple[str, ...]
    cluster: str
    namespace: str
    show_secrets: bool
    output: formats.Output


@options.command(RenderArgs)
@options.repository
@options.option(
    "--agent", "agents", multiple=True, shell_complete=candidates.agents, help="Only these agents."
)
@options.cluster_name
@options.namespace
@options.option(
    "--show-secrets", is_flag=True, help="Also print Secrets, and secret values in JSON."
)
@formats.output("yaml", "json")
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
        formats.show_json({"apiVersion": "v1", "kind": "List", "items": items})
    else:
        click.echo(writer.as_yaml(bundle, secrets=args.show_secrets), nl=False)
    refused = [finding for finding in bundle.findings if finding.refused]
    for finding in refused:
        options.say(report.line_of(finding))
    return 1 if refused else 0
