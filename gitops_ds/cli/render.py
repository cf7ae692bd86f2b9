"""`gitops-ds render`: the manifests that a repository means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from gitops_ds.cli import options


@click.command()
@options.repository
@options.option("--agent", "agents", multiple=True, help="Only these agents.")
@options.cluster_name
@options.namespace
@options.output("yaml", "json")
@options.common
def render(**given: Any) -> int:
    """Print the manifests as `kubectl apply -f -` takes them."""
    return options.run(_render(given))


async def _render(given: dict[str, Any]) -> int:
    from gitops_ds.pipeline import open_repository
    from gitops_ds.redaction import report
    from gitops_ds.render import bundle as rendering
    from gitops_ds.yaml import writer

    repository = open_repository.named(
        given["repository"] or given["directory"], given["path"], given["allowed"]
    )
    snapshot = await open_repository.snapshot(repository, given["revision"])
    bundle = rendering.render(snapshot, cluster=given["cluster"], namespace=given["namespace"])
    if given["agents"]:
        known = set(rendering.agents(snapshot))
        if missing := sorted(set(given["agents"]) - known):
            raise click.UsageError(
                f"--agent {missing[0]}: the repository has "
                f"{', '.join(sorted(known)) or 'no agents'}"
            )
        chosen = {
            key: manifest
            for key, manifest in bundle.manifests.items()
            if manifest.agent in given["agents"]
        }
        bundle = replace(bundle, manifests=chosen)
    if given["output"] == "json":
        from gitops_ds.redaction import objects

        items = [objects.body(manifest.body) for manifest in bundle.manifests.values()]
        options.show_json({"apiVersion": "v1", "kind": "List", "items": items})
    else:
        click.echo(writer.as_yaml(bundle), nl=False)
    refused = [finding for finding in bundle.findings if finding.refused]
    for finding in refused:
        options.say(report.line_of(finding))
    return 1 if refused else 0
