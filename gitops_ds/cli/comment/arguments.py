"""The arguments and options of `comment`."""

from __future__ import annotations

from dataclasses import dataclass

from gitops_ds.cli.parameters import options


@dataclass(frozen=True, kw_only=True)
class CommentArgs(options.CommonArgs):
    """The arguments and options of `gitops-ds comment`; unset ones are those of the CI."""

    report: str
    forge: str | None
    url: str
    project: str
    number: int | None
    sha: str
    key: str
    status: str
    only: str | None
    fail_on: str
    timeout: float
    allow_http: bool
    dry_run: bool
