"""`gitops-ds check`: is what the repository says right?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli import options, outputs

if TYPE_CHECKING:
    from gitops_ds.app.checking import Checked
    from gitops_ds.app.clusters import Connection
    from gitops_ds.model.snapshot import Snapshot

_OUTPUT = f"{', '.join(outputs.FORMATS)}; several at once. Default: text, on GitHub Actions github."


@click.command()
@options.repository
@click.argument("files", nargs=-1)
@options.option("--cluster", "clusters", multiple=True, help="Clusters to check; default: all.")
@options.namespace
@options.option("--base", metavar="REV", help="Also tell what changes against that revision (where the two lines part).")
@options.option(
    "--inventory", multiple=True, metavar="[CLUSTER=]FILE", help="Nodes and objects, as `kubectl get … -o json` prints them."
)
@options.option("--live", is_flag=True, help="Ask the clusters what they have; without it nothing is asked.")
@options.option("--require-live", is_flag=True, help="The same, and a cluster that can't be read is an error.")
@options.access
@options.option("--fail-on", type=click.Choice(["error", "warning", "info"]), default="error", show_default=True)
@options.option("-o", "--output", multiple=True, metavar="FORMAT[=FILE]", callback=outputs.parsed, help=_OUTPUT)
@options.option("--baseline", metavar="FILE", help="Leave alone what an earlier report has (`-o json=FILE`); refusals are told.")
@options.option("--no-cache", is_flag=True, help="Look at every file, whatever earlier runs found about the same content.")
@options.option("--fix", is_flag=True, help="Mend in the work tree what has a safe fix, and tell what is left.")
@options.option("--fix-unsafe", is_flag=True, help="Mend what has a fix that is only a proposal, too.")
@options.option("--explain", "rule", metavar="RULE", help="Print the page of a rule, and check nothing.")
@options.common
def check(**given: Any) -> int:
    """Check a repository: our own files, Kubernetes schemas, rules. Exits 1 when a finding is as loud as --fail-on.

    Where files are named as well, or in the repository's place, only what concerns them is told.
    """
    if given["rule"]:
        return _explain(given["rule"])
    return options.run(_check(given))


def _explain(rule: str) -> int:
    from gitops_ds.validate import catalogue, pages

    name = rule.upper()
    if said := catalogue.OF_FILES.get(name):
        click.echo(f"{name}: {said} (docs/rules.md, Reading files)")
    elif page := pages.of(name):
        click.echo(page.text, nl=False)
    else:
        raise click.UsageError(f"--explain {rule}: there is no such rule; docs/rules.md lists them")
    return 0


def _connection(given: dict[str, Any]) -> Connection:
    from gitops_ds.app import clusters

    return clusters.Connection(given["kubeconfig"], given["context"])


async def _check(given: dict[str, Any]) -> int:
    from datetime import UTC, datetime

    from gitops_ds.app import answering, checking, remembering, repositories, selecting
    from gitops_ds.model.finding import Severity
    from gitops_ds.model.known import Known
    from gitops_ds.report import findings
    from gitops_ds.source.allowed import NOTHING

    named, files = selecting.apart(given["repository"], given["files"])
    repository = repositories.named(named or given["directory"], given["path"], given["allowed"] or NOTHING)
    names = selecting.inside(files, repository)
    live = _connection(given) if given["live"] or given["require_live"] else None
    memory = None if given["no_cache"] else remembering.Memory.of(repository)
    asked = checking.Wanted(
        given["clusters"],
        given["namespace"],
        given["base"],
        given["inventory"],
        live,
        require_live=given["require_live"],
        known=memory.load() if memory else Known(),
    )
    baseline = answering.read_baseline(given["baseline"]) if given["baseline"] else frozenset()
    fix, in_work_tree = given["fix"] or given["fix_unsafe"], repository.directory is not None and given["revision"] is None
    if fix and not in_work_tree:
        raise click.UsageError("--fix changes the files of a work tree: name a directory, and no --revision")
    sides = await checking.sides(repository, given["revision"], asked)
    today = datetime.now(UTC).date()

    def judged(head: Snapshot) -> Checked:
        return selecting.only(answering.without(checking.of(sides.with_head(head), asked), today, baseline), names)

    checked = judged(sides.head)
    if memory:
        memory.save(asked.known, checked)
    if fix:
        from gitops_ds.app import fixing

        fixed = fixing.fix(checked, judged, unsafe=given["fix_unsafe"])
        fixing.write(fixed, repository, sides.head)
        outputs.tell_fixes(fixed, quiet=given["quiet"])
        checked = fixed.checked
    fixable = outputs.fixable(checked, tried=[fix, given["fix_unsafe"]]) if in_work_tree else (0, 0)
    with_fixes = any(format == "sarif" for format, _ in given["output"])
    report = outputs.report(checked, repository.path, fixable=fixable, with_fixes=with_fixes)
    outputs.write(report, outputs.about(given, checked.snapshot, repository.path), given["output"], quiet=given["quiet"])
    if given["verbose"]:
        for name in sorted({name for one in checked.prepared for name in one.bundle.skipped}):
            options.say(f"no Kubernetes object: {name}")
    return 1 if findings.at_or_above(checked.findings, Severity(given["fail_on"])) else 0
