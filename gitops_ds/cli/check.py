"""`gitops-ds check`: is what the repository says right?"""

from __future__ import annotations

from typing import Any

import click

from gitops_ds.cli import options


@click.command()
@options.repository
@options.option("--cluster", "clusters", multiple=True, help="Clusters to check; default: all.")
@options.namespace
@options.option("--base", metavar="REV", help="Also tell what changes against that revision (where the two lines part).")
@options.option("--inventory", help="Nodes and objects from a file, as `kubectl get … -o json` prints them.")
@options.option("--fail-on", type=click.Choice(["error", "warning", "info"]), default="error", show_default=True)
@options.option("-o", "--output", multiple=True, metavar="FORMAT[=FILE]", help="text (default) or json; several at once.")
@options.option("--explain", "rule", metavar="RULE", help="Print the page of a rule, and check nothing.")
@options.common
def check(**given: Any) -> int:
    """Check a repository: our own files, Kubernetes schemas, rules. Exits 1 when a finding is as loud as --fail-on."""
    if given["rule"]:
        return _explain(given["rule"])
    return options.run(_check(given))


def _explain(rule: str) -> int:
    from gitops_ds.validate import pages

    page = pages.of(rule.upper())
    if page is None:
        raise click.UsageError(f"--explain {rule}: there is no such rule; docs/rules.md lists them")
    click.echo(page.text, nl=False)
    return 0


async def _check(given: dict[str, Any]) -> int:
    from gitops_ds.app import checking, repositories
    from gitops_ds.model.finding import Severity
    from gitops_ds.report import findings as report

    repository = repositories.named(given["repository"] or given["directory"], given["path"])
    asked = checking.Wanted(given["clusters"], given["namespace"], given["base"], given["inventory"])
    checked = await checking.check(repository, given["revision"], asked)
    found, findings = checked.prepared, checked.findings
    objects = sum(len(one.bundle.manifests) for one in found)
    files = {path.as_posix(): data for path, data in checked.snapshot.files.items()}
    for wanted in given["output"] or ("text",):
        format, _, target = wanted.partition("=")
        if format == "json":
            import orjson

            document = {**report.as_json(findings, len(files), objects), **checking.changes_json(checked)}
            text = orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"
        elif format == "text":
            lines = report.as_text(findings, files, objects)
            text = "".join(click.style(line, fg=colour) + "\n" if colour else line + "\n" for line, colour in lines)
            text += checking.changes_text(checked)
        else:
            raise click.UsageError(f"-o {format}: there is text and json")
        _write(text, target)
    if given["verbose"]:
        for name in sorted({name for one in found for name in one.bundle.skipped}):
            options.say(f"no Kubernetes object: {name}")
    return 1 if report.at_or_above(findings, Severity(given["fail_on"])) else 0


def _write(text: str, target: str) -> None:
    if not target:
        click.echo(text, nl=False)
        return
    try:
        with click.open_file(target, "w", encoding="utf-8") as file:
            file.write(click.unstyle(text))
    except OSError as error:
        raise click.UsageError(f"-o …={target}: {error.strerror}") from None
