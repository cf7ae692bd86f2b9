"""`gitops-ds check`: is what the repository says right?"""

from __future__ import annotations

from typing import Any

import click

from gitops_ds.cli import options


@click.command()
@options.repository
@options.option("--cluster", "clusters", multiple=True, help="Clusters to check; default: all.")
@options.namespace
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
    from gitops_ds.app import repositories
    from gitops_ds.model.finding import Severity
    from gitops_ds.pipeline import prepare
    from gitops_ds.render import bundle as rendering
    from gitops_ds.report import findings as report

    repository = repositories.named(given["repository"] or given["directory"], given["path"])
    snapshot = await repositories.snapshot(repository, given["revision"])
    clusters = given["clusters"] or rendering.clusters(snapshot) or ("",)
    found = [prepare.prepare(snapshot, cluster=cluster, namespace=given["namespace"]) for cluster in clusters]
    objects = sum(len(one.bundle.manifests) for one in found)
    several = len(found) > 1
    findings = list(dict.fromkeys(f if several else f.on_cluster("") for one in found for f in _once(one.findings)))
    files = {path.as_posix(): data for path, data in snapshot.files.items()}
    for wanted in given["output"] or ("text",):
        format, _, target = wanted.partition("=")
        if format == "json":
            import orjson

            text = orjson.dumps(report.as_json(findings, len(files), objects), option=orjson.OPT_INDENT_2).decode() + "\n"
        elif format == "text":
            lines = report.as_text(findings, files, objects)
            text = "".join(click.style(line, fg=colour) + "\n" if colour else line + "\n" for line, colour in lines)
        else:
            raise click.UsageError(f"-o {format}: there is text and json")
        _write(text, target)
    if given["verbose"]:
        for name in sorted({name for one in found for name in one.bundle.skipped}):
            options.say(f"no Kubernetes object: {name}")
    return 1 if report.at_or_above(findings, Severity(given["fail_on"])) else 0


def _once(findings: Any) -> Any:
    """What is wrong with a file itself is the same for every cluster."""
    return (finding if finding.object else finding.on_cluster("") for finding in findings)


def _write(text: str, target: str) -> None:
    if not target:
        click.echo(text, nl=False)
        return
    try:
        with click.open_file(target, "w", encoding="utf-8") as file:
            file.write(click.unstyle(text))
    except OSError as error:
        raise click.UsageError(f"-o …={target}: {error.strerror}") from None
