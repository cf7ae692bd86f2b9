"""`gitops-ds resume`: resumes the writes of a service."""

from __future__ import annotations

import click

from gitops_ds.cli import requests, suspend
from gitops_ds.cli.parameters import candidates, options


@options.command(suspend.WritesArgs)
@click.argument("agent", required=False, shell_complete=candidates.daemonsets)
@options.in_namespace
@requests.service
async def resume(args: suspend.WritesArgs) -> int:
    """Resume writes for the repository, or for one agent."""
    return await suspend.change(args, suspended=False)
