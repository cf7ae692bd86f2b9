"""`gitops-ds version`: the versions of the program and its schemas."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gitops_ds import __version__
from gitops_ds.cli.parameters import formats, options


@dataclass(frozen=True, kw_only=True)
class VersionArgs:
    """The arguments and options of `gitops-ds version`."""

    output: formats.Output


@click.command()
@formats.output("text", "json")
@options.typed(VersionArgs)
def version(args: VersionArgs) -> int:
    """Print the versions of gitops-ds, Python and the included Kubernetes schemas."""
    import platform

    from gitops_ds.kube.apimachinery import kubernetes_versions

    versions = {
        "gitops-ds": __version__,
        "python": platform.python_version(),
        "kubernetes": kubernetes_versions.RANGE,
    }
    if args.output == "json":
        formats.show_json(formats.document("Version", **versions))
    else:
        for name, text in versions.items():
            click.echo(f"{name} {text}")
    return 0
