"""The output of a check: `-o FORMAT[=FILE]`, the step summary of GitHub Actions, and the context of
the CI job.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gitops_ds.checks.report.formats import ReportFormat
from gitops_ds.cli.check.arguments import ReportArgs
from gitops_ds.cli.parameters import options
from gitops_ds.core.objects import short
from gitops_ds.core.plain_text import counted
from gitops_ds.core.values import replace

if TYPE_CHECKING:
    from gitops_ds.checks.report.findings import (
        Replacement,
        Report,
        ReportContext,
        ReportedChange,
        RuleText,
    )
    from gitops_ds.cli.check.autofix import Fixed
    from gitops_ds.cli.check.model import CheckResult, ClusterChange
    from gitops_ds.core.finding import Finding
    from gitops_ds.core.live import NodeImpact
    from gitops_ds.core.redaction.report import ReportSecrets
    from gitops_ds.core.sources.source_tree import SourceTree

FORMATS = tuple(ReportFormat)


def parsed(
    _: click.Context, __: click.Parameter, values: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Each `FORMAT[=FILE]` as (format, file), the file empty for stdout; by default `github` in
    GitHub Actions, else `text`.
    """
    outputs = []
    for value in values:
        format, equals, file = value.partition("=")
        if format not in FORMATS:
            raise click.BadParameter(
                f"unknown format {format!r}: use {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
            )
        if equals and not file:
            raise click.BadParameter(f"{value!r} names no file")
        outputs.append((format, file))
    return tuple(outputs) or (
        ("github" if os.environ.get("GITHUB_ACTIONS") == "true" else "text", ""),
    )


def write(
    report: Report,
    about: ReportContext,
    outputs: Sequence[tuple[str, str]],
    *,
    quiet: bool = False,
    whole: bool = True,
) -> None:
    """Writes the report in each format; without `whole`, text on stdout has only the first of many
    findings. Raises UsageError if a file cannot be written, Refused for
    a symbolic link.
    """
    from gitops_ds.checks.report import findings, formats, text

    for format, file in outputs:
        if file:
            _into(file, formats.written(ReportFormat(format), report, about))
        elif format == "text":
            for line, colour in text.lines(report, whole=whole):
                click.echo(click.style(line, fg=colour) if colour else line)
        else:
            click.echo(formats.written(ReportFormat(format), report, about).encode(), nl=False)
    if all(file for _, file in outputs):
        names = ", ".join(file for _, file in outputs)
        options.say(f"{findings.severity_counts(report.count())}: written to {names}", quiet=quiet)
    _summarize(report, about)


def _into(file: str, text: str) -> None:
    from gitops_ds.source.git import atomic_write

    if file == "-":
        click.echo(text.encode(), nl=False)
        return
    try:
        atomic_write.replace(Path(file), text.encode())
    except OSError as error:
        raise click.UsageError(f"-o …={file}: {error.strerror}") from None


def _summarize(report: Report, about: ReportContext) -> None:
    """Appends to the step summary of GitHub Actions, up to its size limit: GitHub drops a summary
    above the limit as a whole.
    """
    from gitops_ds.checks.report import markdown

    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    try:
        with Path(name).open("ab") as file:
            page = markdown.as_page(
                report, about, most=max(markdown.SUMMARY - file.tell(), 0)
            ).encode()
            if file.tell() + len(page) <= markdown.SUMMARY:
                file.write(page)
    except OSError as error:
        options.say(
            f"warning: GITHUB_STEP_SUMMARY={name}: {error.strerror}: the summary was not written"
        )


def report_fixes(fixed: Fixed, *, quiet: bool = False) -> None:
    """Prints on stderr the fixes, the DaemonSets they restart, and the findings left with the
    reason.
    """
    hidden = _hidden(fixed.checked, [*fixed.done, *(finding for finding, _ in fixed.left)])

    def line(finding: Finding) -> str:
        words = " ".join(finding.fix.words.split()) if finding.fix else finding.message
        return f"{finding.place}: {finding.rule}: {words}"

    lines = [f"fixed {line(finding)}" for finding in fixed.done]
    lines += [f"restarts the pods of {key} on every node" for key in fixed.restarts]
    lines += [f"not fixed {line(finding)} ({why})" for finding, why in fixed.left]
    count = f"{len(fixed.done)} fixed in {counted(len(fixed.files), 'file')}"
    lines.append(f"{count}, {len(fixed.left)} not fixed" if fixed.left else count)
    options.say("\n".join(hidden.within(line.replace("\n", " ")) for line in lines), quiet=quiet)


def _hidden(checked: CheckResult, findings: Sequence[Finding]) -> ReportSecrets:
    """The secrets in the objects of the findings, and in other objects of the same files."""
    from gitops_ds.core.redaction import report as redaction_report

    keys = {finding.object for finding in findings}
    files = {finding.place.file for finding in findings if finding.place}
    objects = (held for cluster in checked.prepared for held in cluster.bundle.manifests.values())
    return redaction_report.found_in(
        held.body for held in objects if held.origin.base.file in files or held.key in keys
    )


def fixable(checked: CheckResult, *, tried: Sequence[bool]) -> tuple[int, int]:
    """The number of findings with a safe fix and with a proposal; 0 for a kind that was tried."""
    fixes = [finding.fix for finding in checked.findings if finding.fix]
    safe = sum(fix.safe for fix in fixes)
    return (0 if tried[0] else safe), (0 if tried[1] else len(fixes) - safe)


def report(
    checked: CheckResult, root: str, *, fixable: tuple[int, int] = (0, 0), with_fixes: bool = False
) -> Report:
    """The report of a check; names of files are relative to `root` in the repository.

    `with_fixes`: with the changes of the files.
    """
    from gitops_ds.checks.report import findings
    from gitops_ds.cli.check import run
    from gitops_ds.source.render import bundle

    several = len(checked.prepared) > 1
    objects = [
        (cluster.bundle.cluster.name if several else "", held)
        for cluster in checked.prepared
        for held in cluster.bundle.manifests.values()
    ]
    result = findings.report(
        checked.findings,
        {path.as_posix(): data for path, data in checked.snapshot.files.items()},
        (
            findings.CheckedObject(cluster, held.key, held.origin.base.file)
            for cluster, held in objects
        ),
        hidden=_hidden(
            checked, [*checked.findings, *(finding for finding, _ in checked.suppressed)]
        ),
        root=root,
        suppressed=checked.suppressed,
        replacements=_replacements(checked) if with_fixes else {},
    )
    read = len(bundle.read_files(checked.snapshot))
    result = replace(result, fixable=fixable, files_read=read)
    changed = None if checked.changed is None else map(_changed, checked.changed)
    document, notes = run.document(checked), run.notes(checked)
    return findings.with_changes(
        result, changed, document, notes=notes, drift=_drift(checked) if checked.drift else ()
    )


def _replacements(checked: CheckResult) -> Mapping[Finding, tuple[Replacement, ...]]:
    from gitops_ds.cli.check import autofix

    return autofix.replacements(checked)


def _drift(checked: CheckResult) -> Sequence[tuple[str, list[str]]]:
    from gitops_ds.cli.check import base_changes

    return base_changes.drift_lines(checked)


def _changed(group: ClusterChange) -> ReportedChange:
    from gitops_ds.checks.report.findings import ReportedChange
    from gitops_ds.cli.check import base_changes

    def nodes(names: Callable[[NodeImpact], Sequence[str]]) -> int:
        return len({name for change in group.changes for name in names(change.nodes)})

    return ReportedChange(
        group.clusters,
        tuple("\n".join(base_changes.lines(change, group)) for change in group.changes),
        nodes(lambda impact: impact.gained),
        nodes(lambda impact: impact.lost),
        nodes(lambda impact: impact.restarted),
        base_changes.time_of(group),
        base_changes.cost_of(group),
    )


def report_context(args: ReportArgs, snapshot: SourceTree, root: str) -> ReportContext:
    """Versions, commit, and the links of the CI to files and logs."""
    from gitops_ds import __version__
    from gitops_ds.checks.report.findings import ReportContext
    from gitops_ds.core.finding import Severity

    formats = {format for format, _ in args.output}
    commit = snapshot.commit
    context = ReportContext(
        version=__version__,
        key=os.environ.get("GITHUB_WORKFLOW") or os.environ.get("CI_JOB_NAME") or "check",
        scope="/".join(filter(None, (root, "+".join(args.clusters) or "all"))),
        head=short(commit.id) if commit else "",
        base=args.base or "",
        at=commit.committed.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S") if commit else "",
        fail_on=Severity(args.fail_on),
        rules=_rules(formats),
    )
    # not needed outside of a CI job, and the import takes time
    in_job = any(name.startswith(("GITHUB_", "CI_")) for name in os.environ)
    return _with_job(context, commit.id if commit else "") if in_job else context


def _with_job(context: ReportContext, commit: str) -> ReportContext:
    from gitops_ds.cli.comment import ci_event
    from gitops_ds.forges import ci_environment

    merged = ci_environment.checked_out(os.environ)
    sha = commit or merged
    # a job may check out a temporary merge commit; the report is of the head of the pull request
    head = ci_environment.head(os.environ, ci_event.event(os.environ)) if sha == merged else sha
    links = (ci_environment.files_link(os.environ, sha), ci_environment.run_link(os.environ))
    return replace(context, head=short(head), permalink=links[0], full=links[1])


def _rules(formats: Collection[str]) -> dict[str, RuleText]:
    """The texts of rules, for the formats that contain them: building them takes as long as
    checking some hundred files.
    """
    if not {"github", "sarif"}.intersection(formats):
        return {}
    from gitops_ds.checks.engine import rule_table
    from gitops_ds.checks.report.findings import RuleText

    return {
        rule.id: RuleText(
            rule.id,
            rule.summary,
            rule.severity,
            rule.refused,
            _page(rule.id) if "sarif" in formats else "",
        )
        for rule in rule_table.RULES
        if rule.on
    }


def _page(rule: str) -> str:
    from gitops_ds.checks.engine import catalogue

    page = catalogue.page_of(rule)
    return page.text if page else ""
