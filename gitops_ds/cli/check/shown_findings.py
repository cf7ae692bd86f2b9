"""The findings of a check that are reported: not those suppressed by annotations, comments,
exceptions and a baseline. With files as arguments, as from pre-commit, the whole repository is
read, and only findings in these files are reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import orjson

from gitops_ds.checks.engine import rule_table, suppressions
from gitops_ds.checks.report import findings as report
from gitops_ds.cli.check.model import CheckResult
from gitops_ds.core import errors
from gitops_ds.core.finding import Finding
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline.open_repository import RepositoryRef
from gitops_ds.source.render import bundle as rendering


def apart(first: str | None, more: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """The repository and the files: a file in place of the repository is the first file."""
    if first is not None and Path(first).is_file():
        return None, (first, *more)
    return first, tuple(more)


def inside(files: Sequence[str], repository: RepositoryRef) -> frozenset[str]:
    """The files' names in the repository. Raises UsageError for a missing file, or one outside of
    it.
    """
    if not files:
        return frozenset()
    if repository.directory is None:
        raise errors.UsageError(
            f"{files[0]}: files are checked in a work tree; name a directory as the repository"
        )
    root = repository.directory / repository.path
    names = set()
    for file in files:
        if not Path(file).is_file():
            raise errors.UsageError(
                f"{file} is not a file: name one repository, or files of the work tree around you"
            )
        whole = Path(file).parent.resolve() / Path(file).name
        if not whole.is_relative_to(root):
            raise errors.UsageError(f"{file} is not in {root}")
        names.add(whole.relative_to(root).as_posix())
    return frozenset(names)


def only(checked: CheckResult, names: frozenset[str]) -> CheckResult:
    """The check with only the findings in these files; unchanged without files."""
    if not names:
        return checked
    return replace(
        checked,
        findings=tuple(
            finding for finding in checked.findings if finding.place and finding.place.file in names
        ),
        suppressed=tuple(
            suppressed
            for suppressed in checked.suppressed
            if suppressed[0].place and suppressed[0].place.file in names
        ),
    )


def without(
    checked: CheckResult, today: date, baseline: frozenset[str] = frozenset()
) -> CheckResult:
    """The check without findings that are suppressed on that day or are in the baseline; blocking
    findings stay.

    `baseline` has fingerprints. Suppressions are only reported as unused if every cluster was
    checked.
    """
    bundles = [cluster.bundle for cluster in checked.prepared]
    all_clusters = {bundle.cluster.name for bundle in bundles} >= set(
        rendering.clusters(checked.snapshot)
    )
    on = (
        {rule.id for bundle in bundles for rule in rule_table.enabled(bundle.rules)}
        if all_clusters
        else set()
    )
    answers = suppressions.of(bundles, checked.snapshot, rendering.ignored(checked.snapshot))
    answered = suppressions.apply(checked.findings, answers, today, on.__contains__)
    baseline_hashes = _known(answered.findings, baseline)
    return replace(
        checked,
        findings=tuple(finding for finding in answered.findings if finding not in baseline_hashes),
        suppressed=(
            *answered.suppressed,
            *((finding, "known before") for finding in baseline_hashes),
        ),
    )


def _known(findings: tuple[Finding, ...], baseline: frozenset[str]) -> dict[Finding, None]:
    """The findings in the baseline, in the report's order of equal ones."""
    if not baseline:
        return {}
    ordered = report.in_order(findings)
    named = zip(ordered, report.fingerprints(ordered), strict=True)
    return {finding: None for finding, name in named if name in baseline and not finding.refused}


def read_baseline(file: str) -> frozenset[str]:
    """The fingerprints of an earlier report (`check -o json=FILE`). Raises UsageError for any other
    file.
    """
    try:
        report_document = orjson.loads(Path(file).read_bytes())
        return frozenset(finding["fingerprint"] for finding in report_document["findings"])
    except OSError as error:
        raise errors.UsageError(f"--baseline {file}: {error.strerror}") from None
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise errors.UsageError(
            f"--baseline {file}: this is not a report of a check; write one with -o json={file}"
        ) from None
