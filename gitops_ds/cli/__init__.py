"""The command line: parse, call, print, exit code. Commands are imported only when they are called,
so that --help is quick.
"""

from __future__ import annotations

import gc
import importlib
import sys
import traceback

import click

from gitops_ds import __version__
from gitops_ds.errors import GitopsError
from gitops_ds.sandbox import cpu_timer

# Where each command lives; the first sentence is what `--help` shows, so that no command's module
# is imported for it.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init", "Write a small valid repository to begin with."),
    "adopt": ("adopt", "Write a repository from the DaemonSets of a cluster."),
    "check": ("check", "Check a repository, as a pull request would be."),
    "comment": ("comment", "Put a check's report under its pull request."),
    "snapshot": ("snapshot", "Write an inventory file of a cluster, for checks."),
    "render": ("render", "Print the manifests that a repository means."),
    "explain": ("explain", "Print a value and every file:line that set it."),
    "plan": ("plan", "Show what an apply would do."),
    "apply": ("apply", "One pass: fetch, check, plan, apply."),
    "run": ("run", "The service: the scheduled loop and the controller."),
    "get": ("get", "The DaemonSets of a cluster, with commit and health."),
    "status": ("get", "One DaemonSet, node by node."),
    "sources": (
        "sources",
        "The followed repositories, and whether their newest commit is applied.",
    ),
    "events": ("events", "What happened, newest last."),
    "wait": ("wait", "Until a DaemonSet is rolled out, as kubectl rollout status."),
    "trace": ("trace", "From a pod, node or DaemonSet to commit, author and line."),
    "reconcile": ("reconcile", "Ask the service to look at Git now."),
    "suspend": ("suspend", "Write nothing for a repository or an agent; go on comparing."),
    "resume": ("suspend", "Write again for a repository or an agent."),
    "approve": ("approve", "Agree to a plan that deletes more than the guards allow."),
    "hold": ("hold", "Keep a commit from being applied."),
    "release": ("hold", "Let a commit that is held be applied."),
    "history": ("history", "Revisions, commits and authors of a DaemonSet."),
    "rollback": ("rollback", "Write the commit that brings a template back."),
    "drift": ("drift", "What was changed in the cluster, and the commit that keeps it."),
    "restart": ("restart", "Write the commit that restarts a DaemonSet's pods."),
    "replay": ("replay", "Take the decisions of a journal again, and compare."),
    "demo": ("demo", "The whole story on the embedded cluster, in a minute."),
    "doctor": ("doctor", "Settings, Git, cluster, rights: what is well and what is not."),
    "support-dump": ("support_dump", "A redacted archive for a bug report."),
    "uninstall": ("uninstall", "Hand everything back to plain Kubernetes."),
    "completion": ("completion", "Print the completion script for a shell."),
    "version": ("completion", "Print the versions."),
}
ALIASES = {"diff": "plan"}


class Commands(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table: what a newcomer needs first."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself."""
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"gitops_ds.cli.{COMMANDS[name][0]}")
        command: click.Command = getattr(module, name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(__version__, message="%(version)s")
def cli() -> None:
    """DaemonSets on every node of every cluster, straight from Git, without fear."""


def _first(group: BaseExceptionGroup[GitopsError]) -> GitopsError:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _told(error: Exception) -> int:
    """Prints the error in a sentence, with the trace under -vv; its exit code."""
    from gitops_ds.cli import options

    bug = (
        f"this is a bug in gitops-ds ({type(error).__name__}: {error}); please report it with "
        "what -vv prints"
    )
    sentence, code = (str(error), error.exit_code) if isinstance(error, GitopsError) else (bug, 3)
    options.say(f"error: {sentence}")
    if "-vv" in sys.argv:
        traceback.print_exception(error)
    return code


def main() -> None:
    """Runs the command line and exits by the contract: 0 done, 1 no, 2 wrong usage, 3 not possible,
    130 interrupted.
    """
    cpu_timer.install()
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except BaseExceptionGroup as group:  # tasks that failed together: one is enough to tell
        told, rest = group.split(GitopsError)
        if told is None or rest is not None:
            raise
        code = _told(_first(told))
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    except Exception as error:
        code = _told(error)
    # else all that is left is looked through for garbage on the way out: a sixth of the time of a
    # check
    gc.freeze()
    sys.exit(code or 0)
