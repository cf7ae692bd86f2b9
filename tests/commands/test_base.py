"""A change against its base, in a real Git repository: what changes where, and what a rule has
against it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.commands.check import base_changes, run
from gitops_ds.commands.check.model import CheckOptions, CheckResult
from gitops_ds.errors import RevisionUnknown
from gitops_ds.pipeline import open_repository
from tests import gitservers
from tests.plan.world import daemonset

SETTINGS = "version: v1\n"


def image(tag: int) -> str:
    return f"registry.example.com/agent:{tag}"


def cluster(environment: str) -> str:
    return f"environment: {environment}\nnamespace: logging\nagents: {{agent: {{}}}}\n"


def on_a_branch(upstream: gitservers.Upstream, files: dict[str, str]) -> None:
    """A commit on the branch `change`, which leaves main here; main gets another one."""
    upstream.git("checkout", "--quiet", "-b", "change")
    upstream.commit(files)
    upstream.git("checkout", "--quiet", "--force", "main")


def check(upstream: gitservers.Upstream, at: str, **options: Any) -> CheckResult:
    checked = CheckOptions(**options)
    sides = run.sides(open_repository.named(str(upstream.path)), at, checked)
    return run.of(asyncio.run(sides), checked)


def lines(result: CheckResult) -> str:
    """The changes of the only group of clusters, as text."""
    assert result.changed is not None
    (group,) = result.changed
    return "\n".join(line for one in group.changes for line in base_changes.lines(one, group))


@pytest.fixture
def upstream(tmp_path: Path) -> gitservers.Upstream:
    made = gitservers.Upstream(tmp_path / "fleet")
    made.commit({"agent.json": json.dumps(daemonset())})
    return made


def test_later_commits_of_the_base_are_not_part_of_the_change(
    upstream: gitservers.Upstream,
) -> None:
    on_a_branch(upstream, {"agent.json": json.dumps(daemonset(image=image(2)))})
    upstream.commit({"other.json": json.dumps(daemonset("other"))})
    result = check(upstream, "change", base="main")
    assert result.changed is not None
    (group,) = result.changed
    assert [(change.operation, change.key.name) for change in group.changes] == [
        ("update", "agent")
    ]
    assert "new revision 2" in lines(result)
    (entry,) = base_changes.as_json(result)["changes"]
    assert entry["changes"][0]["rollout"] == {"from": 1, "to": 2, "knownAs": None, "restarts": []}


def test_a_change_without_effect_is_reported_as_such(upstream: gitservers.Upstream) -> None:
    on_a_branch(upstream, {"README.md": "words"})
    result = check(upstream, "change", base="main")
    assert result.changed == ()


def test_rules_evaluate_the_change(upstream: gitservers.Upstream) -> None:
    body = daemonset()
    body["spec"]["selector"]["matchLabels"] = body["spec"]["template"]["metadata"]["labels"] = {
        "app": "else"
    }
    on_a_branch(upstream, {"agent.json": json.dumps(body)})
    result = check(upstream, "change", base="main")
    assert [finding.rule for finding in result.findings if finding.refused] == ["DS103"]
    assert not [finding for finding in check(upstream, "change").findings if finding.refused]


def test_a_base_that_does_not_exist_is_reported(upstream: gitservers.Upstream) -> None:
    with pytest.raises(RevisionUnknown, match="nowhere"):
        check(upstream, "main", base="nowhere")


def test_clusters_with_the_same_change_are_reported_together(upstream: gitservers.Upstream) -> None:
    clusters = {
        "clusters/a.yaml": cluster("x"),
        "clusters/b.yaml": cluster("x"),
        "environments/x.yaml": "{}",
    }
    agent = "agents/agent/daemonset.yaml"
    upstream.commit({"gitops-ds.yaml": SETTINGS, **clusters, agent: json.dumps(daemonset())})
    on_a_branch(upstream, {agent: json.dumps(daemonset(image=image(2)))})
    result = check(upstream, "change", base="main")
    assert result.changed is not None
    assert [group.clusters for group in result.changed] == [("a", "b")]
    assert [
        group.clusters
        for group in check(upstream, "change", base="main", clusters=("b",)).changed or ()
    ] == [("b",)]


def nodes_file(directory: Path, ready: int, broken: int = 0) -> str:
    ready_condition = [{"type": "Ready", "status": "True"}]
    items = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{index}"},
            "status": {"conditions": conditions},
        }
        for index, conditions in enumerate([ready_condition] * ready + [[]] * broken)
    ]
    file = directory / "nodes.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(file)


@pytest.mark.parametrize(
    ("ready", "broken", "words"),
    [
        (
            3,
            0,
            (
                "takes about 105 s in 3 steps, at most 1 node at once without it, if a pod takes "
                "30 s "
                "to start and 5 s to stop"
            ),
        ),
        (
            3,
            1,
            (
                "does not end: 1 node: node-3 not ready and maxUnavailable 1; 4 nodes: "
                "node-0 and 3 "
                "more would wait"
            ),
        ),
    ],
)
def test_a_rollout_is_simulated_on_the_known_nodes(
    tmp_path: Path, upstream: gitservers.Upstream, ready: int, broken: int, words: str
) -> None:
    on_a_branch(upstream, {"agent.json": json.dumps(daemonset(image=image(2)))})
    result = check(
        upstream, "change", base="main", snapshots=(nodes_file(tmp_path, ready, broken),)
    )
    assert words in lines(result)
    rehearsal = base_changes.as_json(result)["changes"][0]["changes"][0]["rehearsal"]
    assert (
        rehearsal["steps"] == ready if not broken else len(rehearsal["waiting"]) == ready + broken
    )
