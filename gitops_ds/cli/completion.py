"""`gitops-ds completion` and `version`."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gitops_ds import __version__
from gitops_ds.cli import arguments, options


@dataclass(frozen=True, kw_only=True)
class CompletionArgs:
    """The arguments and options of `gitops-ds completion`."""

    shell: str


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@arguments.typed(CompletionArgs)
def completion(args: CompletionArgs) -> int:
    """Print the completion script: source <(gitops-ds completion bash)."""
    from click.shell_completion import get_completion_class

    from gitops_ds.cli import cli

    kind = get_completion_class(args.shell)
    if kind is not None:
        click.echo(kind(cli, {}, "gitops-ds", "_GITOPS_DS_COMPLETE").source())
    return 0


@dataclass(frozen=True, kw_only=True)
class VersionArgs:
    """The arguments and options of `gitops-ds version`."""

    output: str


@click.command()
@options.output("text", "json")
@arguments.typed(VersionArgs)
def version(args: VersionArgs) -> int:
    """Print the versions of gitops-ds, Python and the included Kubernetes schemas."""
    import platform

    from gitops_ds.apimachinery import kubernetes_versions

    versions = {
        "gitops-ds": __version__,
        "python": platform.python_version(),
        "kubernetes": kubernetes_versions.RANGE,
    }
    if args.output == "json":
        options.show_json({"apiVersion": "gitops-ds.io/v1", "kind": "Version", **versions})
    else:
        for name, text in versions.items():
            click.echo(f"{name} {text}")
    return 0
