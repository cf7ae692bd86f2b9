"""The command line: parse, call, print, exit code. A command is imported when it is called, which
keeps `--help` fast.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from gitops_ds import __version__
from gitops_ds.cli import examples
from gitops_ds.errors import GitopsError
from gitops_ds.sandbox import cpu_timer

# The sections of `--help` in its order, with the module and the summary of each command; `--help`
# imports no command for its summary.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "demo": ("demo", "Play a rollout, a failure and its revert on a simulated cluster."),
        "init": ("init", "Write a small valid repository to begin with."),
        "adopt": ("init", "Write a repository from the DaemonSets of a cluster."),
        "doctor": ("doctor", "Check settings, Git, cluster and permissions."),
    },
    "Files and pull requests": {
        "check": ("check", "Check a repository, as a pull request would be."),
        "render": ("render", "Print the rendered manifests of a repository."),
        "explain": ("render", "Print a value and every file and line that sets it."),
        "comment": ("comment", "Post a check's report as a comment of its pull request."),
        "snapshot": ("snapshot", "Write a cluster snapshot to a file, for checks."),
    },
    "Deploy": {
        "plan": ("plan", "Show the changes of an apply, without applying."),
        "diff": ("plan", "Show the changes of an apply, as kubectl diff does."),
        "apply": ("apply", "Fetch, check, plan and apply a commit once."),
        "run": ("run", "Run the service: the deployer and the DaemonSet controller."),
        "wait": ("status", "Wait for the rollout of a DaemonSet, as kubectl rollout status."),
    },
    "Observe": {
        "get": ("get", "List the DaemonSets of a cluster, with commit and health."),
        "status": ("status", "Show one DaemonSet, node by node."),
        "sources": (
            "sources",
            "List the followed repositories and the state of their newest commit.",
        ),
        "events": ("events", "List events, newest last."),
        "history": ("history", "List revisions, commits and authors of a DaemonSet."),
        "trace": ("history", "Trace a pod, node or DaemonSet to its commit, author and line."),
        "drift": ("commits", "Show drift of the cluster, and write the commit that keeps it."),
    },
    "Change by a commit": {
        "rollback": ("commits", "Write the commit that restores an earlier pod template."),
        "restart": ("commits", "Write the commit that restarts a DaemonSet's pods."),
    },
    "Control the service": {
        "reconcile": ("requests", "Request a reconciliation of the service now."),
        "suspend": ("requests", "Suspend the writes of a repository or an agent."),
        "resume": ("requests", "Resume the writes of a repository or an agent."),
        "hold": ("requests", "Put a commit on hold: it is not applied."),
        "release": ("requests", "Release a commit that is on hold, or whose rollout was halted."),
        "approve": ("approve", "Approve a plan that exceeds the guards, or a stage of a rollout."),
    },
    "Support": {
        "support-dump": ("support_dump", "Write a redacted archive for a bug report."),
        "uninstall": (
            "uninstall",
            "Remove gitops-ds from the objects of a cluster; no pod restarts.",
        ),
        "completion": ("completion", "Print the completion script for a shell."),
        "version": ("completion", "Print the versions."),
        "help": ("completion", "Print the help of a command."),
    },
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}


class ReaderGone(Exception):
    """The reader of the output closed the pipe: `gitops-ds get | head -1`."""


class Commands(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; None if unknown."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"gitops_ds.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        command.epilog = examples.text(cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands with their summaries, and options; imports no command."""
        items = click.Command.shell_complete(self, ctx, incomplete)
        names = (name for name in COMMANDS if name.startswith(incomplete))
        return [*(CompletionItem(name, help=COMMANDS[name][1]) for name in names), *items]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first argument. Raises NoSuchCommand with the nearest names."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(
                error.command_name, possibilities=list(COMMANDS), ctx=ctx
            ) from None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The rest of the command line. Raises NoSuchOption with the place of options."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            place = f"options follow the command: `gitops-ds COMMAND {error.option_name} …`"
            message = f"{error.message} ({place})"
            raise click.NoSuchOption(error.option_name, message, error.possibilities, ctx) from None

    def invoke(self, ctx: click.Context) -> int:
        """Runs the command. Raises ReaderGone if click would exit with 1."""
        try:
            return int(super().invoke(ctx) or 0)
        except BrokenPipeError:
            raise ReaderGone from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The tables of the groups, without importing anything; one width for all."""
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), entry[1]) for name, entry in group.items()])


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(__version__, message="%(version)s")
def cli() -> None:
    """GitOps for DaemonSets: deploys them from Git and rolls their pods out, with a check before
    every change.
    """


def _first(group: BaseExceptionGroup[GitopsError]) -> GitopsError:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _report(error: Exception, arguments: Sequence[str]) -> int:
    """Prints the error, with its traceback under -vv; returns the exit code."""
    from gitops_ds.cli.parameters import options

    bug = (
        f"this is a bug in gitops-ds ({type(error).__name__}: {error}); please report it with "
        "what -vv prints"
    )
    sentence, code = (str(error), error.exit_code) if isinstance(error, GitopsError) else (bug, 3)
    options.say(f"error: {sentence}")
    if "-vv" in arguments:
        traceback.print_exception(error)
    return code


def _drop_output() -> None:
    """Drops buffered output without a reader, whose flush at the exit would fail; both streams may
    be the same pipe.

    https://docs.python.org/3/library/signal.html#note-on-sigpipe
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


COMPLETION_VARIABLE = "_GITOPS_DS_COMPLETE"


def program_name(path: str) -> str:
    """The name in usage messages of the program at `path`: kubectl calls its plugins by a file."""
    plugin = path.rpartition(os.sep)[2].startswith("kubectl-")
    return "kubectl gitops-ds" if plugin else "gitops-ds"


def execute(arguments: Sequence[str]) -> int:
    """Runs a command line and returns its exit code: 0 success, 1 negative result, 2 usage error,
    3 failure, 130 interrupted, 141 without a reader of the output.
    """
    try:
        name = program_name(sys.argv[0])
        return (
            cli.main(list(arguments), name, complete_var=COMPLETION_VARIABLE, standalone_mode=False)
            or 0
        )
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BaseExceptionGroup as group:  # of tasks that failed together, the first is reported
        ours, rest = group.split(GitopsError)
        if ours is None or rest is not None:
            raise
        return _report(_first(ours), arguments)
    except ReaderGone:
        _drop_output()
        return 141
    except Exception as error:
        return _report(error, arguments)


def main() -> None:
    """Runs the command line of the process, and ends the process with its exit code."""
    cpu_timer.install()
    try:
        code = execute(sys.argv[1:])
    except BrokenPipeError:  # of a message about an error
        _drop_output()
        code = 141
    # without it, garbage collection at exit takes a sixth of the time of a check
    gc.freeze()
    sys.exit(code)
