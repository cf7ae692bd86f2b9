"""`gitops-ds plan`: the changes of an apply."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.checks.report import printable
from gitops_ds.cli.parameters import candidates, formats, options
from gitops_ds.core.objects import short

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.cli.plan.planning import PlanRequest
    from gitops_ds.core.sources.source_tree import SourceTree
    from gitops_ds.deploy.pipeline.open_repository import RepositoryRef


_COLOURS = {"+": "green", "~": "yellow", "-": "red", "!": "magenta"}


def coloured(text: str) -> str:
    """The lines of a plan, coloured by sign. They quote Git, the cluster and its API server, so
    control characters and workflow commands are escaped.
    """
    lines = printable.block(text).splitlines(keepends=True)
    return "".join(
        click.style(line, fg=_COLOURS[line[2]])
        if line[:2] == "  " and line[2:3] in _COLOURS
        else line
        for line in lines
    )


# the options of the commands that show changes
changes = options.together(
    options.option(
        "--snapshot",
        alias="--inventory",
        metavar="FILE",
        shell_complete=candidates.files,
        help="A cluster snapshot instead of a cluster: from `gitops-ds snapshot` or "
        "`kubectl get -o json`.",
    ),
    options.option(
        "--simulate",
        type=click.IntRange(0),
        help="Generated nodes instead of a cluster: their number.",
    ),
    options.option(
        "--prune/--no-prune", default=False, help="Also delete objects that were removed from Git."
    ),
    options.option("--adopt", is_flag=True, help="Take over objects that other tools applied."),
    options.option(
        "--force-conflicts", is_flag=True, help="Force-apply fields owned by other field managers."
    ),
)


@dataclass(frozen=True, kw_only=True)
class ChangesArgs(options.RepositoryArgs, options.ConnectionArgs, options.CommonArgs):
    """The options of a command that shows the changes of an apply."""

    cluster: str
    namespace: str
    snapshot: str | None
    simulate: int | None
    prune: bool
    adopt: bool
    force_conflicts: bool

    async def request(self) -> PlanRequest:
        """What is planned; prints which work tree is read."""
        from gitops_ds.cli.plan.planning import ApplyTarget, PlanRequest
        from gitops_ds.deploy.pipeline import open_repository
        from gitops_ds.ownership.options import ApplyOptions, Guards

        repository = self.repository_ref()
        quiet = self.quiet or bool(self.repository or self.directory)
        options.report_work_tree(repository, quiet=quiet)
        return PlanRequest(
            repository,
            await open_repository.snapshot(repository, self.revision),
            ApplyTarget(
                self.cluster, self.namespace, self.connection(), self.snapshot, self.simulate
            ),
            ApplyOptions(
                Guards(prune=self.prune), self.adopt, self.force_conflicts, is_shown_only=True
            ),
        )


@dataclass(frozen=True, kw_only=True)
class PlanArgs(ChangesArgs):
    """The arguments and options of `gitops-ds plan`."""

    exit_code: bool
    output: formats.Output


@options.command(PlanArgs)
@options.repository
@options.cluster_name
@options.namespace
@options.connection
@changes
@options.option("--exit-code", is_flag=True, help="Exit 1 if there are changes, also held ones.")
@formats.output("text", "json", "yaml", "markdown")
async def plan(args: PlanArgs) -> int:
    """Show the changes of an apply: objects, fields, revisions, nodes; ends with the hash of the
    plan.

    Reads the files of the work tree, as `check` does, or the commit of --revision; `apply` takes
    commits only.
    """
    from gitops_ds.cli.plan import planning
    from gitops_ds.deploy.plan import printers

    request = await args.request()
    with simulation_named():
        made = await planning.plan(request)
    await report_uncommitted(request.repository, request.snapshot, quiet=args.quiet)
    match args.output:
        case "text":
            click.echo(coloured(printers.as_text(made)), nl=False)
        case "markdown":
            click.echo(printers.as_markdown(made), nl=False)
        case _:
            formats.write(args.output, printers.as_json(made))
    return 1 if args.exit_code and (made.writes or made.held) else 0


@contextmanager
def simulation_named() -> Iterator[None]:
    """Adds the options without a cluster to the error of a missing kubeconfig."""
    from gitops_ds.core import errors

    try:
        yield
    except errors.NoKubeconfig as error:
        raise errors.NoKubeconfig(
            f"{error}; --simulate NODES or --snapshot FILE need no cluster"
        ) from None


async def report_uncommitted(
    repository: RepositoryRef, snapshot: SourceTree, *, quiet: bool
) -> None:
    """Prints the changes of the work tree that `apply` ignores."""
    from gitops_ds.cli.plan import planning

    if snapshot.commit is None and (more := await planning.uncommitted(repository, snapshot)):
        takes = (
            f"`apply` takes commit {short(more.commit)}, without them"
            if more.commit
            else "`apply` takes commits, and the repository has none"
        )
        options.say(
            f"warning: the work tree has changes that are not committed: {more}; {takes}",
            quiet=quiet,
        )
