"""The formats in which a check is told. Pure."""

from __future__ import annotations

from enum import StrEnum

from gitops_ds.report import contract, github, gitlab, junit, markdown, sarif, text
from gitops_ds.report.findings import About, Report


class Format(StrEnum):
    """What `check -o` takes."""

    TEXT = "text"
    GITHUB = "github"
    GITLAB = "gitlab"
    SARIF = "sarif"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    JSON = "json"


def written(format: Format, report: Report, about: About) -> str:
    """The report in a format; the same text for the same report."""
    match format:
        case Format.TEXT:
            return text.as_text(report)
        case Format.GITHUB:
            return github.as_commands(report, about)
        case Format.GITLAB:
            return gitlab.as_json(report)
        case Format.SARIF:
            return sarif.as_json(report, about)
        case Format.JUNIT:
            return junit.as_xml(report, about)
        case Format.MARKDOWN:
            return markdown.as_page(report, about)
        case Format.JSON:
            return contract.as_json(report)
