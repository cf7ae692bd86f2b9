"""`gitops-ds completion` and `version`."""

from __future__ import annotations

from typing import Any

import click

from gitops_ds import __version__
from gitops_ds.cli import options


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the completion script: source <(gitops-ds completion bash)."""
    from click.shell_completion import get_completion_class

    from gitops_ds.cli import cli

    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(cli, {}, "gitops-ds", "_GITOPS_DS_COMPLETE").source())
    return 0


@click.command()
@options.output("text", "json")
def version(**given: Any) -> int:
    """Print the version of gitops-ds, of Python, and of the Kubernetes schemas inside."""
    import platform

    told = {
        "gitops-ds": __version__,
        "python": platform.python_version(),
        "kubernetes": "1.34 to 1.37",
    }
    if given["output"] == "json":
        options.show_json({"apiVersion": "gitops-ds.io/v1", "kind": "Version", **told})
    else:
        for name, text in told.items():
            click.echo(f"{name} {text}")
    return 0
