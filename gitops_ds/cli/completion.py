"""`gitops-ds completion`: the completion of a shell, and that of the plugin of kubectl."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from gitops_ds.cli.parameters import options


@dataclass(frozen=True, kw_only=True)
class CompletionArgs:
    """The arguments and options of `gitops-ds completion`."""

    shell: str


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@options.typed(CompletionArgs)
def completion(args: CompletionArgs) -> int:
    """Print the completion script: source <(gitops-ds completion bash)."""
    from click.shell_completion import get_completion_class

    from gitops_ds.cli import COMPLETION_VARIABLE, cli

    kind = get_completion_class(args.shell)
    if kind is not None:
        click.echo(kind(cli, {}, "gitops-ds", COMPLETION_VARIABLE).source())
    return 0


# From cobra's ShellCompDirective; kubectl completes files and directories itself:
# https://pkg.go.dev/github.com/spf13/cobra#ShellCompDirective
NO_FILES = 4
_DIRECTIVES = {"file": 0, "dir": 16}


def plugin_completions(words: Sequence[str]) -> str:
    """The answer of `kubectl_complete-gitops_ds` to the words after `kubectl gitops-ds`, the last
    one incomplete: a candidate per line, then a directive.

    https://github.com/kubernetes/enhancements/tree/master/keps/sig-cli/3751-plugin-completion
    """
    from click.shell_completion import ShellComplete

    from gitops_ds.cli import COMPLETION_VARIABLE, cli

    *before, incomplete = words or [""]
    completion = ShellComplete(cli, {}, "kubectl gitops-ds", COMPLETION_VARIABLE)
    try:
        items = completion.get_completions(list(before), incomplete)
    except Exception:  # a message would corrupt the prompt
        items = []
    plain = [item for item in items if item.type == "plain"]
    lines = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in plain]
    directive = max((_DIRECTIVES.get(item.type, NO_FILES) for item in items), default=NO_FILES)
    return "".join(f"{line}\n" for line in (*lines, f":{directive}"))


def kubectl() -> None:
    """The program `kubectl_complete-gitops_ds`, which kubectl calls for completions of the
    plugin.
    """
    click.echo(plugin_completions(sys.argv[1:]), nl=False)
