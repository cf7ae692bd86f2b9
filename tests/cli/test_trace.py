"""From what runs to who wrote it; and a restart that changes nothing else."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.cli.commits import git_commit
from gitops_ds.cli.commits.git_commit import WriteTarget
from gitops_ds.cli.history import revision_history
from gitops_ds.cli.restart import RestartArgs, restart_commit
from gitops_ds.cli.trace import traced_pods
from gitops_ds.core import errors, names
from gitops_ds.core.cluster import BRIEF
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.objects import POD, CommitId
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.rollouts.state import proofs
from gitops_ds.status import agent_lists
from gitops_ds.status.agents import Agent
from gitops_ds.testing.simulator import virtual_time
from tests.cli import commands
from tests.rollouts.rollout_world import SECOND
from tests.simulator.setup import set_up
from tests.status.staged_world import watched
from tests.status.test_agent_lists import Recorded, many

AGENT = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: logging}
spec:
  selector: {matchLabels: {app: agent}}
  # what runs
  template:
    metadata: {labels: {app: agent}}  # kept
    spec:
      containers: [{name: agent, image: "registry.example.com/agent:1"}]
"""


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("pod/agent-x", ("pod", "agent-x")),
        ("nodes/node-1", ("node", "node-1")),
        ("daemonset.apps/agent", ("ds", "agent")),
        ("commit/abc1234", ("commit", "abc1234")),
    ],
)
def test_what_is_traced_is_written_as_kubectl_writes_it(text: str, means: tuple[str, str]) -> None:
    assert traced_pods.parse_target(text) == means


@pytest.mark.parametrize("text", ["agent", "deployment/agent", "pod/", "/agent"])
def test_anything_else_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(errors.UsageError, match="write pod/NAME, node/NAME, ds/NAME or commit/SHA"):
        traced_pods.parse_target(text)


def repository(directory: Path, files: dict[str, str]) -> open_repository.RepositoryRef:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    for words in (
        ("init", "-q", "-b", "main"),
        ("config", "user.name", "Dana"),
        ("config", "user.email", "dana@example.com"),
        ("add", "."),
        ("commit", "-q", "-m", "One agent"),
    ):
        subprocess.run(("git", "-C", directory, *words), check=True)
    return open_repository.named(str(directory))


def restart(
    named: open_repository.RepositoryRef, name: str = "ds/agent", **options: Any
) -> git_commit.Proposed:
    args = commands.parsed(RestartArgs, "restart", name, **options)
    target = WriteTarget(named, args.proposal())
    return asyncio.run(restart_commit.restart(target, args.name, args, args.reason))[0]


def test_a_restart_is_one_added_annotation_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    done = restart(repository(tmp_path, {"agent.yaml": AGENT}), reason="A new certificate")
    changed = [
        line
        for line in done.patch.splitlines()
        if line and line[0] in "+-" and line[:3] not in ("+++", "---")
    ]
    assert "Restart DaemonSet logging/agent" in done.patch
    assert "A new certificate" in done.patch
    assert all("restartedAt" in line or "labels: {app: agent}" in line for line in changed), changed
    assert any(
        line.startswith("+") and "kubectl.kubernetes.io/restartedAt" in line and "# kept" in line
        for line in changed
    ), changed


def test_a_second_restart_moves_the_moment_on(tmp_path: Path) -> None:
    old = AGENT.replace(
        "labels: {app: agent}}",
        "labels: {app: agent}, annotations: {kubectl.kubernetes.io/restartedAt: "
        "'2026-01-01T00:00:00Z'}}",
    )
    patch = restart(repository(tmp_path, {"agent.yaml": old})).patch
    assert "-" in patch
    assert patch.count("restartedAt") == 2


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("files", "name", "space", "message"),
    [
        ({"agent.yaml": AGENT}, "ds/missing", "", "has no DaemonSet missing"),
        (
            {"a.yaml": AGENT, "b.yaml": AGENT.replace("logging", "other")},
            "ds/agent",
            "",
            "in the namespaces logging, other",
        ),
        (
            {
                "vendor/kustomization.yaml": "resources: [agent.yaml]\nnamePrefix: my-\n",
                "vendor/agent.yaml": AGENT,
            },
            "ds/my-agent",
            "",
            "kustomization",
        ),
    ],
)
def test_what_can_not_be_restarted_by_a_commit_is_refused(
    tmp_path: Path, files: dict[str, str], name: str, space: str, message: str
) -> None:
    with pytest.raises((errors.UsageError, errors.Refused), match=message):
        restart(repository(tmp_path, files), name, namespace=space)


async def test_a_pod_is_traced_by_the_pods_of_its_daemonset() -> None:
    async with set_up(3) as there:
        await many(there)
        bare = {"metadata": {"name": "bare", "namespace": "default", "labels": {"app": "agent"}}}
        await there.people.create(
            POD, {**bare, "spec": {"containers": [{"name": "a", "image": "a:1"}]}}
        )
        now, client = virtual_time.clock()(), Recorded(there.people)
        every = await agent_lists.list_agents(there.people, "gitops-ds", now)
        traced = [pod.name for agent in every for pod in agent.seen.pods]
        assert "bare" in traced
        for name in traced:
            scope = await traced_pods.scope_of(client, "pod", name, "")
            agents = await agent_lists.list_agents(client, "gitops-ds", now, scope=scope)
            found = traced_pods.found(agents, "pod", name, "")
            assert found == traced_pods.found(every, "pod", name, "")
            assert (BRIEF in client.pods) == (name == "bare")
            client.pods.clear()
        for name in ("none", "a,b"):
            with pytest.raises(errors.NoMatch, match=f"no pod of a DaemonSet is named {name}"):
                await traced_pods.scope_of(client, "pod", name, "")


def staged_agent(commit: str, cause: str = "") -> Agent:
    """An agent in a rollout whose target is of this commit, with its subject beside it."""
    there = watched()
    there.commit(SECOND)
    for body in there.world.revisions.values():
        if names.ROLLOUT in (body["metadata"].get("labels") or {}):
            body["metadata"]["annotations"] |= {names.COMMIT: commit, names.CHANGE_CAUSE: cause}
    there.rounds(6)
    return there.agent()


async def traced(agent: Agent, named: open_repository.RepositoryRef) -> list[dict[str, Any]]:
    assert agent.target is not None
    found = traced_pods.found([agent], "commit", agent.commit_of(agent.target), "")
    async with open_repository.opened(named) as git:
        return await traced_pods.traced(found, git, "")


def test_a_trace_in_a_staged_rollout_has_the_author_of_its_commit(tmp_path: Path) -> None:
    named = repository(tmp_path, {"agent.yaml": AGENT})
    run = ("git", "-C", tmp_path, "rev-parse", "HEAD")
    commit = subprocess.run(run, check=True, capture_output=True, text=True).stdout.strip()
    items = asyncio.run(traced(staged_agent(commit), named))
    assert {(one["commit"], one["author"], one["changeCause"]) for one in items} == {
        (commit, "Dana <dana@example.com>", "One agent")
    }
    assert all(one["committed"] for one in items)


def test_without_git_a_trace_in_a_staged_rollout_has_the_subject_beside_its_commit() -> None:
    agent = staged_agent("a" * 40, "Another agent")
    found = traced_pods.found([agent], "commit", "a" * 40, "")
    items = asyncio.run(traced_pods.traced(found, None, ""))
    assert {one["changeCause"] for one in items} == {"Another agent"}


def test_without_git_a_revision_has_no_subject_of_an_earlier_commit() -> None:
    there = watched()
    (revision,) = there.world.revisions.values()
    revision["metadata"].setdefault("annotations", {}).update(
        {names.COMMIT: "a" * 40, names.CHANGE_CAUSE: "One agent"}
    )

    def causes(agent: Agent) -> list[str]:
        commits = {agent.key: {proofs.identity(agent.history[0].template): CommitId("b" * 40)}}
        reverted = replace(agent, state=DeployerState(commits=commits))
        return [one["changeCause"] for one in asyncio.run(revision_history.history(reverted, None))]

    assert causes(there.agent()) == [""]
    stated = {names.COMMIT: "b" * 40, names.CHANGE_CAUSE: 'Revert "Another agent"'}
    there.world.body["metadata"]["annotations"].update(stated)
    assert causes(there.agent()) == ['Revert "Another agent"']
