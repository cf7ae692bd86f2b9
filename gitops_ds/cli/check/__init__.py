"""`gitops-ds check`: the check of a repository."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import date
from typing import TYPE_CHECKING, TextIO

import click
import msgspec

from gitops_ds.cli.check import check_output
from gitops_ds.cli.check.arguments import CheckArgs
from gitops_ds.cli.parameters import candidates, options
from gitops_ds.core import plain_text, progress

if TYPE_CHECKING:
    from gitops_ds.checks.report.findings import Report
    from gitops_ds.cli.check.model import CheckResult
    from gitops_ds.cli.check.result_cache import ResultCache
    from gitops_ds.core.sources.source_tree import SourceTree
    from gitops_ds.deploy.pipeline.open_repository import RepositoryRef

_OUTPUT = (
    f"{', '.join(check_output.FORMATS)}; several at once. Default: text, on GitHub Actions github."
)


@options.command(CheckArgs)
@options.checked_repository
@click.argument("files", nargs=-1, shell_complete=candidates.files)
@options.option(
    "--cluster",
    "clusters",
    multiple=True,
    shell_complete=candidates.clusters,
    help="Clusters to check; default: all.",
)
@options.namespace
@options.option(
    "--base",
    metavar="REV",
    help="Also report the changes against this revision (its merge base).",
)
@options.option(
    "--base-from",
    metavar="URL",
    help="Fetch the base and its history from this server, for a shallow clone.",
)
@options.option(
    "--snapshot",
    alias="--inventory",
    multiple=True,
    metavar="[CLUSTER=]FILE",
    shell_complete=candidates.files,
    help="A cluster snapshot: nodes and objects, from `gitops-ds snapshot` or "
    "`kubectl get -o json`.",
)
@options.option("--live", is_flag=True, help="Read the clusters; by default no cluster is read.")
@options.option(
    "--require-live", is_flag=True, help="As --live, and a cluster that cannot be read is an error."
)
@options.access
@options.fail_on("The lowest severity for which the exit code is 1.")
@options.option(
    "-o",
    "--output",
    multiple=True,
    metavar="FORMAT[=FILE]",
    callback=check_output.parsed,
    help=_OUTPUT,
)
@options.option(
    "--baseline",
    metavar="FILE",
    shell_complete=candidates.files,
    help="Suppress the findings of an earlier report (`-o json=FILE`); blocking findings stay.",
)
@options.option(
    "--all",
    "whole",
    is_flag=True,
    help="Print each finding as text; by default errors first, and of many others a summary by "
    "rule.",
)
@options.option(
    "--no-cache",
    is_flag=True,
    help="Check every file, without the cached results of earlier runs.",
)
@options.option(
    "--fix",
    is_flag=True,
    help="Fix findings with a safe fix in the work tree, and report the rest.",
)
@options.option("--fix-unsafe", is_flag=True, help="Also apply fixes that are only proposals.")
@options.option(
    "--explain", "rule", metavar="RULE", help="Print the page of a rule; checks nothing."
)
def check(args: CheckArgs) -> int:
    """Check a repository: its own files, Kubernetes schemas, rules. Exits 1 for a finding at or
    above the severity of --fail-on.

    With FILES, the whole repository is read, and only findings in these files are reported.
    """
    if args.rule:
        return _explain(args.rule)
    return options.run(_check(args), is_bounded=True)


def _explain(rule: str) -> int:
    from gitops_ds.checks.engine import catalogue

    name = rule.upper()
    if summary := catalogue.of_files().get(name):
        click.echo(f"{name}: {summary} (docs/rules.md, Reading files)")
    elif page := catalogue.page_of(name):
        click.echo(page.text, nl=False)
    else:
        raise click.UsageError(f"--explain {rule}: no such rule; docs/rules.md lists all rules")
    return 0


async def _check(args: CheckArgs) -> int:
    from gitops_ds.checks.report import findings
    from gitops_ds.cli.check.result_cache import CachedReport
    from gitops_ds.core.finding import Severity

    request = _request(args)
    key = request.cache_key()
    cached = (
        CachedReport(request.cache, key, request.work_tree)
        if request.cache and request.work_tree and key
        else None
    )
    report = cached.load() if cached else None
    tree, skipped = request.work_tree, list[str]()
    if report is None or tree is None:
        with _progress(quiet=args.quiet):
            report, tree, skipped = await _evaluate(request)
        if cached:
            cached.save(report, tree)
    context = check_output.report_context(args, tree, request.repository.path)
    check_output.write(report, context, args.output, quiet=args.quiet, whole=args.whole)
    if args.verbose:
        for name in skipped:
            options.say(f"no Kubernetes object: {name}")
    return 1 if findings.at_or_above(report.findings, Severity(args.fail_on)) else 0


def _progress(*, quiet: bool) -> AbstractContextManager[None]:
    """The file that is processed, on a terminal."""
    import shutil
    import sys

    from gitops_ds.cli.output import rollout_display

    if quiet or not rollout_display.on_terminal():
        return nullcontext()
    return file_shown(sys.stderr, shutil.get_terminal_size().columns)


def _request(args: CheckArgs) -> _CheckRequest:
    """The request of a command line. Raises UsageError for options that contradict each other."""
    from datetime import UTC, datetime

    from gitops_ds.cli.check import result_cache, shown_findings
    from gitops_ds.core.sources.repository_limits import NO_PROGRAMS
    from gitops_ds.deploy.pipeline import open_repository

    directory, files = shown_findings.apart(args.repository, args.files)
    if args.base_from and not args.base:
        raise click.UsageError("--base-from is the source of the base: set --base as well")
    directory = directory or args.directory
    repository = open_repository.named(directory, args.path, args.allowed or NO_PROGRAMS)
    options.report_work_tree(repository, quiet=args.quiet or bool(directory))
    request = _CheckRequest(
        args,
        repository,
        shown_findings.inside(files, repository),
        datetime.now(UTC).date(),
        _baseline(args.baseline),
        None if args.no_cache else result_cache.ResultCache.of(repository),
        open_repository.standing(repository)
        if repository.directory is not None and args.revision is None
        else None,
    )
    if request.fix and request.work_tree is None:
        raise click.UsageError(
            "--fix changes the files of a work tree: name a directory, and no --revision"
        )
    return request


def _baseline(file: str | None) -> frozenset[str]:
    if not file:
        return frozenset()
    from gitops_ds.cli.check import shown_findings

    return shown_findings.read_baseline(file)


class _CheckRequest(msgspec.Struct, frozen=True):
    """The arguments of a check, resolved. A check of a revision has no `work_tree`."""

    args: CheckArgs
    repository: RepositoryRef
    names: frozenset[str]
    today: date
    baseline: frozenset[str]
    cache: ResultCache | None
    work_tree: SourceTree | None

    @property
    def fix(self) -> bool:
        """Whether files are fixed."""
        return self.args.fix or self.args.fix_unsafe

    @property
    def with_fixes(self) -> bool:
        """Whether the report contains the fixes of files."""
        return any(format == "sarif" for format, _ in self.args.output)

    def cache_key(self) -> tuple[str, ...]:
        """The inputs of the report other than the files; empty when the report cannot be cached."""
        args = self.args
        uncached = (args.base, args.snapshot, args.live, args.require_live, args.verbose)
        if self.fix or self.with_fixes or self.names or any(uncached):
            return ()
        inputs = (
            args.clusters,
            args.namespace,
            self.repository.allowed,
            sorted(self.baseline),
        )
        return (*map(repr, inputs), self.today.isoformat())


async def _evaluate(request: _CheckRequest) -> tuple[Report, SourceTree, list[str]]:
    """The report, its files, and the files without an object."""
    from gitops_ds.cli.check import parallel, run, shown_findings
    from gitops_ds.core.sources.source_tree import CachedResults

    args, cache = request.args, request.cache
    cached = cache.load() if cache else CachedResults()
    sides = await run.sides(args, request.repository, request.work_tree, cached)

    def evaluate(head: SourceTree) -> CheckResult:
        result = run.of(sides.with_head(head))
        return shown_findings.only(
            shown_findings.without(result, request.today, request.baseline), request.names
        )

    with parallel.shared(sides) as sides:
        checked = evaluate(sides.head)
        if sides.base is None:
            run.require_content(request.repository.display_path, sides.head, checked.prepared)
        if cache:
            cache.save(sides.head.cached, checked)
    if request.fix:
        checked = _fix(request, checked, evaluate)
    skipped = sorted({name for cluster in checked.prepared for name in cluster.bundle.skipped})
    fixable = (
        check_output.fixable(checked, tried=[request.fix, args.fix_unsafe])
        if request.work_tree
        else (0, 0)
    )
    report = check_output.report(
        checked, request.repository.path, fixable=fixable, with_fixes=request.with_fixes
    )
    return report, checked.snapshot, skipped


def _fix(
    request: _CheckRequest, checked: CheckResult, evaluate: Callable[[SourceTree], CheckResult]
) -> CheckResult:
    """The check of the fixed files."""
    from gitops_ds.cli.check import autofix

    fixed = autofix.fix(checked, evaluate, unsafe=request.args.fix_unsafe)
    autofix.write(fixed, request.repository, checked.snapshot)
    check_output.report_fixes(fixed, quiet=request.args.quiet)
    return fixed.checked


LINE_AFTER, LINE_EVERY = 1.0, 0.1  # seconds until the line is shown, and between two of its texts
_ERASE = "\r\x1b[K"


class FileLine:
    """A line that is overwritten in place, without a thread, because `check` forks."""

    def __init__(self, stream: TextIO, width: int, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self._stream, self._width, self._clock = stream, width, clock
        self._began = clock()
        self._next = self._began + LINE_AFTER

    def show(self, file: str) -> None:
        """Shows a file, if it is time for another text."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + LINE_EVERY
        text = f"checking, {now - self._began:.0f} s: {plain_text.line(file)}"
        self._stream.write(_ERASE + text[: self._width - 1])
        self._stream.flush()

    def erase(self) -> None:
        """Removes the line."""
        if self._next > self._began + LINE_AFTER:
            self._stream.write(_ERASE)
            self._stream.flush()


@contextmanager
def file_shown(
    stream: TextIO, width: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Shows the files that are processed in this context."""
    line = FileLine(stream, width, clock)
    token = progress.listener.set(line.show)
    try:
        yield
    finally:
        progress.listener.reset(token)
        line.erase()
