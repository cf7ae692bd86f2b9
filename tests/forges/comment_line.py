"""The command line of `gitops-ds comment`."""

from __future__ import annotations

from gitops_ds.cli.comment.arguments import CommentArgs
from tests.cli import commands


def args(report: str, **options: object) -> CommentArgs:
    """The arguments for that report; an empty option is not in the command line."""
    present = {name: value for name, value in options.items() if value != ""}
    return commands.parsed(CommentArgs, "comment", report=report, **present)
