"""The context of the kubeconfig that a command takes, where a file of the repository names one,
which may be a stranger's.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gitops_ds.core.errors import GitopsError, UsageError
from tests.agent_manifest import agent
from tests.cli.commands import invoked
from tests.gitservers import git

# no server listens there, and the message names the address
STAGING, PRODUCTION = "http://127.0.0.1:1", "http://127.0.0.1:2"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Its main branch leaves the context open; the change that is checked out names production."""
    directory = tmp_path / "repository"
    for folder in ("clusters", "agents/agent"):
        (directory / folder).mkdir(parents=True)
    (directory / "agents/agent/daemonset.yaml").write_text(agent())
    git(directory, "init", "--quiet", "--initial-branch=main")
    in_context(directory, "")
    git(directory, "checkout", "--quiet", "-b", "change")
    in_context(directory, "production")
    return directory


def in_context(repository: Path, context: str) -> None:
    (repository / "clusters/main.yaml").write_text(
        f"api: {{context: {context}}}\n" if context else "{}\n"
    )
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", f"context {context}")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    file = tmp_path / "kubeconfig"
    servers = {"staging": STAGING, "production": PRODUCTION}
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "staging",
                "clusters": [
                    {"name": name, "cluster": {"server": server}}
                    for name, server in servers.items()
                ],
                "users": [{"name": "me", "user": {"token": "x"}}],
                "contexts": [
                    {"name": name, "context": {"cluster": name, "user": "me"}} for name in servers
                ],
            }
        )
    )
    return file


COMMANDS = {
    "plan": ("plan", "{repository}"),
    "apply": ("apply", "{repository}"),
    "drift": ("drift", "-C", "{repository}"),
    "check": ("check", "{repository}", "--require-live"),
}


def asked(command: str, repository: Path, kubeconfig: Path, *more: str) -> GitopsError:
    """Why the command could do nothing."""
    words = [word.format(repository=repository) for word in COMMANDS[command]]
    cache = str(kubeconfig.parent / "cache")
    done = invoked(*words, *more, KUBECONFIG=str(kubeconfig), GITOPS_DS_CACHE=cache)
    assert isinstance(done.exception, GitopsError), (done.exception, done.output)
    return done.exception


@pytest.mark.sampled
@pytest.mark.parametrize("command", COMMANDS)
def test_a_context_that_only_the_repository_names_is_not_used(
    command: str, repository: Path, kubeconfig: Path
) -> None:
    refused = asked(command, repository, kubeconfig)
    assert isinstance(refused, UsageError)
    assert (
        "clusters/main.yaml names the context production, and the current context of the "
        "kubeconfig is staging" in str(refused)
    )
    assert "--cluster main or --context" in str(refused)


@pytest.mark.sampled
@pytest.mark.parametrize("command", COMMANDS)
def test_the_person_chooses_by_cluster_or_context(
    command: str, repository: Path, kubeconfig: Path
) -> None:
    assert PRODUCTION in str(asked(command, repository, kubeconfig, "--cluster", "main"))
    assert STAGING in str(asked(command, repository, kubeconfig, "--context", "staging"))


@pytest.mark.sampled
@pytest.mark.parametrize("command", COMMANDS)
def test_the_current_context_needs_no_option(
    command: str, repository: Path, kubeconfig: Path
) -> None:
    in_context(repository, "staging")
    assert STAGING in str(asked(command, repository, kubeconfig))


def test_with_a_base_the_base_names_the_context(repository: Path, kubeconfig: Path) -> None:
    assert STAGING in str(asked("check", repository, kubeconfig, "--base", "main"))
    git(repository, "checkout", "--quiet", "main")
    in_context(repository, "production")
    git(repository, "checkout", "--quiet", "-b", "another")
    in_context(repository, "staging")
    assert PRODUCTION in str(asked("check", repository, kubeconfig, "--base", "main"))
