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
from gitops_ds.cli.command_table import COMMANDS, GROUPS
from gitops_ds.core.errors import GitopsError
from gitops_ds.source.sandbox import cpu_timer


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
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"gitops_ds.cli.{name}"), name)
        command.epilog = examples.text(cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands with their summaries, and options; imports no command."""
        items = click.Command.shell_complete(self, ctx, incomplete)
        names = (name for name in COMMANDS if name.startswith(incomplete))
        return [*(CompletionItem(name, help=COMMANDS[name].summary) for name in names), *items]

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
                rows = [(name.ljust(width), entry.summary) for name, entry in group.items()]
                formatter.write_dl(rows)


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
