"""The arguments and options of `check`."""

from __future__ import annotations

from dataclasses import dataclass

from gitops_ds.cli.parameters import options


@dataclass(frozen=True, kw_only=True)
class ReportArgs:
    """The options of a check that are part of its report."""

    clusters: tuple[str, ...]
    base: str | None
    fail_on: str
    output: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class CheckArgs(
    ReportArgs,
    options.RepositoryArgs,
    options.AccessArgs,
    options.CommonArgs,
):
    """The arguments and options of `gitops-ds check`."""

    files: tuple[str, ...]
    namespace: str
    base_from: str | None
    snapshot: tuple[str, ...]
    live: bool
    require_live: bool
    baseline: str | None
    no_cache: bool
    whole: bool
    fix: bool
    fix_unsafe: bool
    rule: str | None
