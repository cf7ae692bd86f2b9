"""Suppresses findings of a check: by annotations, comments, exceptions and a baseline."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import orjson

from gitops_ds.checks.engine import rule_table, suppressions
from gitops_ds.commands.check.model import CheckResult
from gitops_ds.errors import UsageError
from gitops_ds.model.finding import Finding
from gitops_ds.model.values import replace
from gitops_ds.render import bundle as rendering
from gitops_ds.report import findings as report


def without(
    checked: CheckResult, today: date, baseline: frozenset[str] = frozenset()
) -> CheckResult:
    """The check without findings that are suppressed on that day or are in the baseline; blocking
    findings stay.

    `baseline` has fingerprints. Suppressions are only reported as unused if every cluster was
    checked.
    """
    bundles = [one.bundle for one in checked.prepared]
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
        raise UsageError(f"--baseline {file}: {error.strerror}") from None
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise UsageError(
            f"--baseline {file}: this is not a report of a check; write one with -o json={file}"
        ) from None
