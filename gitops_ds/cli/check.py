"""`gitops-ds check`: is what the repository says right?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli import check_output, options

if TYPE_CHECKING:
    from gitops_ds.client.connect import Connection
    from gitops_ds.commands.check.result_cache import ResultCache
    from gitops_ds.commands.check.run import CheckResult
    from gitops_ds.model.snapshot import Snapshot
    from gitops_ds.pipeline.open_repository import RepositoryRef
    from gitops_ds.report.findings import Report

_OUTPUT = (
    f"{', '.join(check_output.FORMATS)}; several at once. Default: text, on GitHub Actions github."
)


@click.command()
@options.repository
@click.argument("files", nargs=-1)
@options.option("--cluster", "clusters", multiple=True, help="Clusters to check; default: all.")
@options.namespace
@options.option(
    "--base",
    metavar="REV",
    help="Also tell what changes against that revision (where the two lines part).",
)
@options.option(
    "--base-from",
    metavar="URL",
    help="Read the base and its history from that server, for a shallow clone.",
)
@options.option(
    "--inventory",
    multiple=True,
    metavar="[CLUSTER=]FILE",
    help="Nodes and objects, as `kubectl get … -o json` prints them.",
)
@options.option(
    "--live", is_flag=True, help="Ask the clusters what they have; without it nothing is asked."
)
@options.option(
    "--require-live", is_flag=True, help="The same, and a cluster that can't be read is an error."
)
@options.access
@options.option(
    "--fail-on", type=click.Choice(["error", "warning", "info"]), default="error", show_default=True
)
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
    help="Leave alone what an earlier report has (`-o json=FILE`); refusals are told.",
)
@options.option(
    "--no-cache",
    is_flag=True,
    help="Look at every file, whatever earlier runs found about the same content.",
)
@options.option(
    "--fix", is_flag=True, help="Mend in the work tree what has a safe fix, and tell what is left."
)
@options.option(
    "--fix-unsafe", is_flag=True, help="Mend what has a fix that is only a proposal, too."
)
@options.option(
    "--explain", "rule", metavar="RULE", help="Print the page of a rule, and check nothing."
)
@options.common
def check(**given: Any) -> int:
    """Check a repository: our own files, Kubernetes schemas, rules. Exits 1 when a finding is as
    loud as --fail-on.

    Where files are named as well, or in the repository's place, only what concerns them is told.
    """
    if given["rule"]:
        return _explain(given["rule"])
    return options.run(_check(given))


def _explain(rule: str) -> int:
    from gitops_ds.checks import rule_pages
    from gitops_ds.checks.engine import catalogue

    name = rule.upper()
    if said := catalogue.OF_FILES.get(name):
        click.echo(f"{name}: {said} (docs/rules.md, Reading files)")
    elif page := rule_pages.of(name):
        click.echo(page.text, nl=False)
    else:
        raise click.UsageError(f"--explain {rule}: there is no such rule; docs/rules.md lists them")
    return 0


async def _check(given: dict[str, Any]) -> int:
    from datetime import UTC, datetime

    from gitops_ds.commands.check import file_filter, result_cache
    from gitops_ds.commands.check.report_cache import Question
    from gitops_ds.model.allowed_renderers import NOTHING
    from gitops_ds.model.finding import Severity
    from gitops_ds.pipeline import open_repository
    from gitops_ds.report import findings

    named, files = file_filter.apart(given["repository"], given["files"])
    if given["base_from"] and not given["base"]:
        raise click.UsageError("--base-from is where the base is read: name it with --base")
    repository = open_repository.named(
        named or given["directory"], given["path"], given["allowed"] or NOTHING
    )
    options.tell_tree(repository, quiet=given["quiet"] or bool(named or given["directory"]))
    asked = _Asked(
        given,
        repository,
        file_filter.inside(files, repository),
        datetime.now(UTC).date(),
        _baseline(given["baseline"]),
        None if given["no_cache"] else result_cache.ResultCache.of(repository),
        open_repository.standing(repository)
        if repository.directory is not None and given["revision"] is None
        else None,
    )
    if asked.fix and asked.standing is None:
        raise click.UsageError(
            "--fix changes the files of a work tree: name a directory, and no --revision"
        )
    words = asked.words()
    question = (
        Question(asked.memory, words, asked.standing)
        if asked.memory and asked.standing and words
        else None
    )
    report = question.answer() if question else None
    snapshot, skipped = asked.standing, list[str]()
    if report is None or snapshot is None:
        report, snapshot, skipped = await _judged(asked)
        if question:
            question.keep(report, snapshot)
    check_output.write(
        report,
        check_output.about(given, snapshot, repository.path),
        given["output"],
        quiet=given["quiet"],
    )
    if given["verbose"]:
        for name in skipped:
            options.say(f"no Kubernetes object: {name}")
    return 1 if findings.at_or_above(report.findings, Severity(given["fail_on"])) else 0


def _baseline(file: str | None) -> frozenset[str]:
    if not file:
        return frozenset()
    from gitops_ds.commands.check import suppress

    return suppress.read_baseline(file)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a check is asked: the command line, and what it stands for. `standing` is the work tree;
    None: a revision is meant.
    """

    given: dict[str, Any]
    repository: RepositoryRef
    names: frozenset[str]
    today: date
    baseline: frozenset[str]
    memory: ResultCache | None
    standing: Snapshot | None

    @property
    def fix(self) -> bool:
        """Whether files shall be mended."""
        return bool(self.given["fix"] or self.given["fix_unsafe"])

    @property
    def with_fixes(self) -> bool:
        """Whether the report shall say how the files would change."""
        return any(format == "sarif" for format, _ in self.given["output"])

    def words(self) -> tuple[str, ...]:
        """All that the report hangs on beside the files; nothing where it hangs on more than words
        can say.
        """
        given = self.given
        alone = ("base", "inventory", "live", "require_live", "verbose")
        if self.fix or self.with_fixes or self.names or any(given[name] for name in alone):
            return ()
        said = (
            given["clusters"],
            given["namespace"],
            self.repository.allowed,
            sorted(self.baseline),
        )
        return (*map(repr, said), self.today.isoformat())


async def _judged(asked: _Asked) -> tuple[Report, Snapshot, list[str]]:
    """The report, the files that it is of, and those of them that hold no object."""
    from gitops_ds.commands.check import file_filter, parallel, run, suppress
    from gitops_ds.model.cached_results import CachedResults

    given, memory = asked.given, asked.memory
    wanted = run.CheckOptions(
        given["clusters"],
        given["namespace"],
        given["base"],
        given["base_from"] or "",
        given["inventory"],
        _connection(given) if given["live"] or given["require_live"] else None,
        require_live=given["require_live"],
        known=memory.load() if memory else CachedResults(),
    )
    sides = await run.sides(asked.repository, given["revision"], wanted, asked.standing)

    def judged(head: Snapshot) -> CheckResult:
        found = suppress.without(run.of(sides.with_head(head), wanted), asked.today, asked.baseline)
        return file_filter.only(found, asked.names)

    with parallel.shared(sides, wanted) as sides:
        checked = judged(sides.head)
        if sides.base is None:
            run.require_content(asked.repository.display_path, sides.head, checked.prepared)
        if memory:
            memory.save(sides.head.known, checked)
    if asked.fix:
        checked = _fixed(asked, checked, judged)
    skipped = sorted({name for one in checked.prepared for name in one.bundle.skipped})
    fixable = (
        check_output.fixable(checked, tried=[asked.fix, given["fix_unsafe"]])
        if asked.standing
        else (0, 0)
    )
    report = check_output.report(
        checked, asked.repository.path, fixable=fixable, with_fixes=asked.with_fixes
    )
    return report, checked.snapshot, skipped


def _connection(given: dict[str, Any]) -> Connection:
    from gitops_ds.client import connect

    return connect.Connection(given["kubeconfig"], given["context"])


def _fixed(
    asked: _Asked, checked: CheckResult, judged: Callable[[Snapshot], CheckResult]
) -> CheckResult:
    """The check of the files that were mended."""
    from gitops_ds.commands.check import autofix

    fixed = autofix.fix(checked, judged, unsafe=asked.given["fix_unsafe"])
    autofix.write(fixed, asked.repository, checked.snapshot)
    check_output.tell_fixes(fixed, quiet=asked.given["quiet"])
    return fixed.checked
