"""Options shared by several commands, each with its environment variable; running a command, and
its output.

A group of options has its values as a frozen dataclass beside it: `connection` adds the options of
`ConnectionArgs`. The dataclass of a command is composed of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import re
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gitops_ds.cli import command_table
from gitops_ds.cli.parameters import candidates
from gitops_ds.core.values import replace

if TYPE_CHECKING:
    from gitops_ds.core.cluster import Cluster, ClusterReader
    from gitops_ds.core.sources.bundle import ClusterFacts
    from gitops_ds.core.sources.repository_limits import AllowedRenderers
    from gitops_ds.deploy.pipeline.open_repository import RepositoryRef
    from gitops_ds.kube.client.connect import Connection

T = TypeVar("T")
Command = Callable[..., Any]


class AliasedOption(click.Option):
    """An option with a second name that `--help` hides."""

    def __init__(self, names: Sequence[str], *, alias: str, **settings: Any) -> None:
        """`alias` is the hidden name, `--` included."""
        self.alias = alias
        super().__init__([*names, alias], **settings)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The line of `--help`, without the alias."""
        names = self.opts
        self.opts = [name for name in names if name != self.alias]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = names


def option(*names: str, alias: str | None = None, **settings: Any) -> Callable[[Command], Command]:
    """A click option that is also read from GITOPS_DS_NAME; `alias` is a hidden second name."""
    long = next(name for name in names if name.startswith("--")).partition("/")[0]
    if alias is None:
        return click.option(*names, envvar=_variable(long), **settings)
    return click.option(
        *names,
        long[2:].replace("-", "_"),
        cls=AliasedOption,
        alias=alias,
        envvar=[_variable(long), _variable(alias)],
        **settings,
    )


def _variable(name: str) -> str:
    return "GITOPS_DS_" + name[2:].upper().replace("-", "_")


def together(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order of `--help`."""

    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def typed(
    kind: type[T],
) -> Callable[[Callable[[T], int | Coroutine[Any, Any, int]]], Callable[..., int]]:
    """A decorator that passes click's parameters to the command as one `kind`; a coroutine is
    run.
    """

    def decorate(command: Callable[[T], int | Coroutine[Any, Any, int]]) -> Callable[..., int]:
        @functools.wraps(command)
        def call(**parameters: Any) -> int:
            done = command(kind(**parameters))
            return done if isinstance(done, int) else run(done)

        return call

    return decorate


def plan_hash(text: str) -> str:
    """The hash of a plan, or an empty text. Raises BadParameter for any other text."""
    from gitops_ds.deploy.plan import guard_limits

    if not text or guard_limits.is_hash(text):
        return text
    is_commit = re.fullmatch("[0-9a-fA-F]{4,64}", text) is not None
    but = ", but looks like a commit ID" if is_commit else ""
    raise click.BadParameter(
        f"{text!r} is not the hash of a plan{but}: `gitops-ds plan` and the log print the hash; a "
        "stage of a rollout is approved with `gitops-ds approve ds/NAME STAGE`, and a commit on "
        "hold is released with `gitops-ds release COMMIT`"
    )


def _colour(_: click.Context, __: click.Parameter, value: str) -> str:
    """`auto` depends on NO_COLOR and the terminal: https://no-color.org"""
    on = value == "always" or (
        value == "auto" and not os.environ.get("NO_COLOR") and sys.stdout.isatty()
    )
    click.get_current_context().color = on
    return value


class DurationType(click.ParamType[float]):
    """A duration in seconds, from `90s`, `5m`, `1h30m`, `500ms` or a number of seconds; at least
    `least`.
    """

    name = "duration"

    def __init__(self, least: float = 0.0) -> None:
        self._least = least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The duration in seconds. Fails for an invalid duration and for one below the minimum."""
        from gitops_ds.core import duration

        try:
            seconds = duration.seconds(value, unit="s") if isinstance(value, str) else float(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds < self._least:
            self.fail(f"{value!r} is less than {self._least:g}s", param, ctx)
        return seconds


def time_limit(default: str, help: str, *, least: float = 0.0) -> Callable[[Command], Command]:
    """`--timeout`, a duration of at least `least` seconds."""
    kind = DurationType(least)
    return option("--timeout", type=kind, default=default, show_default=True, help=help)


def fail_on(help: str) -> Callable[[Command], Command]:
    """`--fail-on` with the severities of findings."""
    severities = click.Choice(["error", "warning", "info"])
    return option("--fail-on", type=severities, default="error", show_default=True, help=help)


_common = together(
    option("-v", "--verbose", count=True, help="Print more; -vv prints the traceback of an error."),
    option("-q", "--quiet", is_flag=True, help="Print results and errors only."),
    option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        callback=_colour,
        expose_value=False,
        help="Whether output is coloured; auto: on a terminal, unless NO_COLOR is set.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class CommonArgs:
    """The options of every command."""

    verbose: int
    quiet: bool


def command(
    kind: type[T],
) -> Callable[[Callable[[T], int | Coroutine[Any, Any, int]]], click.Command]:
    """A decorator of a command that gets its parameters as one `kind`, those of every command after
    its own.
    """

    def decorate(work: Callable[[T], int | Coroutine[Any, Any, int]]) -> click.Command:
        made = click.command()(typed(kind)(work))
        made.params += click.command()(_common(lambda: None)).params
        return made

    return decorate


def _allowed(_: click.Context, __: click.Parameter, value: str | None) -> Any:
    from gitops_ds.core.sources import repository_limits

    return None if value is None else repository_limits.parse_allowed([value])


allow = option(
    "--allow",
    "allowed",
    metavar="PROGRAMS",
    callback=_allowed,
    help="Renderers allowed on the repository's files: helm, kustomize or both, comma-separated; "
    "`network` allows fetching charts.",
)


def directory_of(what: str) -> Callable[[Command], Command]:
    """The option of a repository, `what` in its help."""
    return option(
        "-C",
        "--repository",
        "directory",
        shell_complete=candidates.directories,
        help=f"{what}; default: the Git work tree around the current directory.",
    )


directory = directory_of("A directory or URL")
directory_of_commits = directory_of("The repository of the commits")
inside = option("--path", default="", help="The directory inside the repository.")


def _repository(
    default: str, complete: Any = candidates.directories
) -> Callable[[Command], Command]:
    revision = option("--revision", help=f"A commit, branch or tag; default: {default}.")
    return together(
        click.argument("repository", required=False, shell_complete=complete),
        directory,
        revision,
        inside,
        allow,
    )


_WORK_TREE = "the files of the work tree; for a URL, the tip of the default branch"
repository = _repository(_WORK_TREE)
# for `check`, which accepts files in its place
checked_repository = _repository(_WORK_TREE, candidates.files)
# for commands that take commits only
committed_repository = _repository("the last commit, without uncommitted changes")


@dataclass(frozen=True, kw_only=True)
class RepositoryArgs:
    """The repository that a command reads, and its revision."""

    repository: str | None
    directory: str | None
    revision: str | None
    path: str
    allowed: AllowedRenderers | None

    def repository_ref(self) -> RepositoryRef:
        """The repository; by default the Git work tree around the current directory."""
        from gitops_ds.deploy.pipeline import open_repository

        return open_repository.named(self.repository or self.directory, self.path, self.allowed)


cluster_name = option(
    "--cluster",
    "cluster",
    default="",
    shell_complete=candidates.clusters,
    help="The name of a file in clusters/, without .yaml.",
)
namespace = option(
    "-n",
    "--namespace",
    default="",
    shell_complete=candidates.namespaces,
    help="The namespace of objects without one.",
)
# for commands that select a DaemonSet
in_namespace = option(
    "-n",
    "--namespace",
    default="",
    shell_complete=candidates.namespaces,
    help="The namespace of the DaemonSet; default: all namespaces.",
)
# for commands that write a commit
written_to = together(directory, inside, allow, cluster_name, in_namespace)


@dataclass(frozen=True, kw_only=True)
class CommitTargetArgs:
    """The repository, cluster and namespace of a command that writes a commit."""

    directory: str | None
    path: str
    allowed: AllowedRenderers | None
    cluster: str
    namespace: str

    def repository_ref(self) -> RepositoryRef:
        """The repository; by default the Git work tree around the current directory."""
        from gitops_ds.deploy.pipeline import open_repository

        return open_repository.named(self.directory, self.path, self.allowed)


access = together(
    option(
        "--kubeconfig",
        shell_complete=candidates.files,
        help="The kubeconfig file; default: that of kubectl.",
    ),
    option("--context", shell_complete=candidates.contexts, help="The context of the kubeconfig."),
)


@dataclass(frozen=True, kw_only=True)
class AccessArgs:
    """The API server."""

    kubeconfig: str | None
    context: str | None

    def connection(self) -> Connection:
        """The connection to the API server."""
        from gitops_ds.kube.client import connect

        writes = bool(command_table.declared().cluster)
        return connect.Connection(self.kubeconfig, self.context, writes=writes)

    def open_cluster(
        self, facts: ClusterFacts | None = None
    ) -> AbstractAsyncContextManager[ClusterReader]:
        """The cluster, for reads; `facts` have the context for a command line without one."""
        from gitops_ds.kube.client import connect

        return connect.reading(self.connection(), facts)

    def open_for_writes(
        self, facts: ClusterFacts | None = None
    ) -> AbstractAsyncContextManager[Cluster]:
        """As `open_cluster`, for writes as well."""
        from gitops_ds.kube.client import connect

        return connect.writing(self.connection(), facts)


connection = together(
    access,
    option(
        "--state-namespace",
        default="gitops-ds",
        show_default=True,
        help="The namespace of the deployer's state.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class ConnectionArgs(AccessArgs):
    """The API server and the namespace of the deployer's state."""

    state_namespace: str

    def connection(self) -> Connection:
        """The connection to the API server, and the namespace of the deployer's state."""
        return replace(super().connection(), state_namespace=self.state_namespace)


def run(
    work: Coroutine[Any, Any, T],
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    *,
    is_bounded: bool = False,
) -> T:
    """The result of a command's coroutine, run in an event loop of asyncio or of `loop`. Ctrl-C
    cancels it. `is_bounded`: it only reads a repository, which has a limit.
    """
    # A short process creates more objects than it drops: garbage collection would take a fifth of
    # the time of a check, and find nothing. The number is that of new objects, of about 100 bytes.
    if loop is None:
        gc.set_threshold(5_000_000 if is_bounded else 500_000, 20, 100)
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(work)
    except KeyboardInterrupt:
        raise click.exceptions.Abort from None


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Imports of a process that runs for months: without garbage collections, a tenth of their
    time. Modules live as long as the process, so later collections do not visit them.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def say(text: str, *, quiet: bool = False) -> None:
    """Prints a message on stderr, without control characters and workflow commands: it may quote
    a repository.
    """
    if not quiet:
        from gitops_ds.checks.report import printable

        click.echo(printable.block(text), err=True)


def report_work_tree(repository: RepositoryRef, *, quiet: bool) -> None:
    """Prints which work tree is used when a command without a directory runs below its root."""
    root = repository.directory
    if root is not None and root != Path.cwd().resolve():
        say(
            f"using the whole work tree {root}; pass `.` for this directory only",
            quiet=quiet,
        )
