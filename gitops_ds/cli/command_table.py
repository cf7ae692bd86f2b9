"""The table of commands: the summary of each, and what it may write. It imports no command: `NAME`
is the function of that name in the module or folder of that name beside this one.

A command gets a client that writes to the cluster only if its row has an entry for it:
`options.AccessArgs` and `client.connect` read `declared`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import click

_CLONE = ("git",)  # of a repository on a server, and of the local one
_RENDERED = ("git", "renders")
_STATE = "the state of the repository"
_REQUEST = "the request, in an annotation of the state"
_COMMIT = "a commit, with `--push`"


class Writes(NamedTuple):
    """What a command may write beside its output and temporary files.

    `cluster` has the plurals of resources, `*` for those of a repository, each with its content.
    `git` is what goes to a repository or its forge. `cache` are folders of the cache directory, and
    `files` all other files.
    """

    cluster: Mapping[str, str] = {}
    git: str = ""
    cache: tuple[str, ...] = ()
    files: str = ""


class CommandEntry(NamedTuple):
    """A command: its line in `--help`, and what it may write."""

    summary: str
    writes: Writes


_NOTHING = Writes()
# The sections of `--help` in its order.
GROUPS: dict[str, dict[str, CommandEntry]] = {
    "Start": {
        "demo": CommandEntry(
            "Play a rollout, a failure and its revert on a simulated cluster.", _NOTHING
        ),
        "init": CommandEntry(
            "Write a small valid repository to begin with.",
            Writes(files="the files of the new repository"),
        ),
        "adopt": CommandEntry(
            "Write a repository from the DaemonSets of a cluster.",
            Writes(files="the files of the new repository"),
        ),
        "doctor": CommandEntry(
            "Check settings, Git, cluster and permissions.", Writes(cache=_RENDERED)
        ),
    },
    "Files and pull requests": {
        "check": CommandEntry(
            "Check a repository, as a pull request would be.",
            Writes(
                cache=("git", "renders", "checks"),
                files="the repository, with `--fix`; reports, with `-o FORMAT=FILE` and in CI",
            ),
        ),
        "render": CommandEntry(
            "Print the rendered manifests of a repository.", Writes(cache=_RENDERED)
        ),
        "explain": CommandEntry(
            "Print a value and every file and line that sets it.",
            Writes(cache=_RENDERED),
        ),
        "comment": CommandEntry(
            "Post a check's report as a comment of its pull request.",
            Writes(git="the comment, and the status of the commit"),
        ),
        "snapshot": CommandEntry("Print a cluster snapshot as JSON, for checks.", _NOTHING),
    },
    "Deploy": {
        "plan": CommandEntry(
            "Show the changes of an apply, without applying.", Writes(cache=_RENDERED)
        ),
        "diff": CommandEntry(
            "Show the changes of an apply, as kubectl diff does.", Writes(cache=_RENDERED)
        ),
        "apply": CommandEntry(
            "Fetch, check, plan and apply a commit once.",
            Writes(
                cluster={
                    "*": "the objects of the commit",
                    "controllerrevisions": "the targets of rollouts",
                    "configmaps": _STATE,
                    "namespaces": "that of the state, if it is missing",
                },
                cache=_RENDERED,
            ),
        ),
        "run": CommandEntry(
            "Run the service: the deployer and the DaemonSet controller.",
            Writes(
                cluster={
                    "*": "the objects of the commits",
                    "controllerrevisions": "the revisions of DaemonSets",
                    "pods": "those of DaemonSets",
                    "daemonsets": "the status, and the end of a rollout",
                    "nodes": "startup taints",
                    "configmaps": "the state of the repositories, the status of agents, "
                    "notifications",
                    "namespaces": "that of the state, if it is missing",
                    "leases": "the election",
                    "events": "what happened",
                },
                git="reverts, reports of clusters, the status of commits: as set in the settings",
                cache=("git", "renders", "attempts"),
            ),
        ),
        "wait": CommandEntry(
            "Wait for the rollout of a DaemonSet, as kubectl rollout status.",
            Writes(cache=_CLONE),
        ),
    },
    "Observe": {
        "get": CommandEntry(
            "List the DaemonSets of a cluster, with commit and health.",
            Writes(cache=_CLONE),
        ),
        "status": CommandEntry("Show one DaemonSet, node by node.", _NOTHING),
        "sources": CommandEntry(
            "List the followed repositories and the state of their newest commit.",
            _NOTHING,
        ),
        "events": CommandEntry("List events, newest last.", _NOTHING),
        "history": CommandEntry(
            "List revisions, commits and authors of a DaemonSet.",
            Writes(cache=_CLONE),
        ),
        "trace": CommandEntry(
            "Trace a pod, node or DaemonSet to its commit, author and line.",
            Writes(cache=_RENDERED),
        ),
        "drift": CommandEntry(
            "Show drift of the cluster, and write the commit that keeps it.",
            Writes(git=_COMMIT, cache=_RENDERED),
        ),
    },
    "Change by a commit": {
        "rollback": CommandEntry(
            "Write the commit that restores an earlier pod template.",
            Writes(git=f"{_COMMIT}; a pull request, with `--pull-request`", cache=_RENDERED),
        ),
        "restart": CommandEntry(
            "Write the commit that restarts a DaemonSet's pods.",
            Writes(git=_COMMIT, cache=_RENDERED),
        ),
    },
    "Control the service": {
        "reconcile": CommandEntry(
            "Request a reconciliation of the service now.",
            Writes(cluster={"configmaps": _REQUEST}),
        ),
        "suspend": CommandEntry(
            "Suspend the writes of a repository or an agent.",
            Writes(cluster={"configmaps": _REQUEST, "daemonsets": "that of an agent"}),
        ),
        "resume": CommandEntry(
            "Resume the writes of a repository or an agent.",
            Writes(cluster={"configmaps": _REQUEST, "daemonsets": "that of an agent"}),
        ),
        "hold": CommandEntry(
            "Put a commit on hold: it is not applied.",
            Writes(
                cluster={"configmaps": _REQUEST, "daemonsets": "the hold of its rollouts"},
                cache=_CLONE,
            ),
        ),
        "release": CommandEntry(
            "Release a commit that is on hold, or whose rollout was halted.",
            Writes(
                cluster={
                    "configmaps": _REQUEST,
                    "daemonsets": "the hold of its rollouts",
                    "controllerrevisions": "their halts",
                },
                cache=_CLONE,
            ),
        ),
        "approve": CommandEntry(
            "Approve a plan that exceeds the guards, or a stage of a rollout.",
            Writes(
                cluster={
                    "configmaps": "the approval of a plan",
                    "controllerrevisions": "the approval of a stage",
                },
                git="a commit, with `--commit --push`",
                cache=_CLONE,
            ),
        ),
    },
    "Support": {
        "support-dump": CommandEntry(
            "Write a redacted archive for a bug report.",
            Writes(files="the archive"),
        ),
        "uninstall": CommandEntry(
            "Remove gitops-ds from the objects of a cluster; no pod restarts.",
            Writes(
                cluster={
                    "*": "removes the labels, annotations and field ownership of the objects",
                    "controllerrevisions": "deletes the targets of rollouts",
                    "pods": "deletes those that wait for a rollout",
                    "configmaps": "deletes the states",
                    "leases": "deletes that of the election",
                }
            ),
        ),
        "completion": CommandEntry("Print the completion script for a shell.", _NOTHING),
        "version": CommandEntry("Print the versions.", _NOTHING),
        "help": CommandEntry("Print the help of a command.", _NOTHING),
    },
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}


def declared() -> Writes:
    """What the running command may write; nothing outside of a command."""
    context = click.get_current_context(silent=True)
    name = context.command.name if context is not None else None
    return COMMANDS[name].writes if name in COMMANDS else _NOTHING
