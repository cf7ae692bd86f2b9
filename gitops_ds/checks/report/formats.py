"""The output formats of a check. Each is imported when it is used. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gitops_ds.checks.report.findings import Report, ReportContext


class ReportFormat(StrEnum):
    """The values of `check -o`."""

    TEXT = "text"
    GITHUB = "github"
    GITLAB = "gitlab"
    SARIF = "sarif"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    JSON = "json"


def written(format: ReportFormat, report: Report, about: ReportContext) -> str:
    """The report in a format. Equal reports yield equal text."""
    match format:
        case ReportFormat.TEXT:
            from gitops_ds.checks.report import text

            return text.as_text(report)
        case ReportFormat.GITHUB:
            from gitops_ds.checks.report import github

            return github.as_commands(report, about)
        case ReportFormat.GITLAB:
            from gitops_ds.checks.report import gitlab

            return gitlab.as_json(report)
        case ReportFormat.SARIF:
            from gitops_ds.checks.report import sarif

            return sarif.as_json(report, about)
        case ReportFormat.JUNIT:
            from gitops_ds.checks.report import junit

            return junit.as_xml(report, about)
        case ReportFormat.MARKDOWN:
            from gitops_ds.checks.report import markdown

            return markdown.as_page(report, about)
        case ReportFormat.JSON:
            from gitops_ds.checks.report import json_report

            return json_report.as_json(report, about)
