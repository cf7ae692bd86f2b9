"""The metrics for Prometheus: names that its linter accepts, bounded labels, and the status of
agents at the moment of the scrape.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from gitops_ds.core.events import deployer
from gitops_ds.core.health import (
    AgentStatus,
    HealthState,
    LossCause,
    NodeCounts,
    NodeLoss,
    RolloutCounts,
)
from gitops_ds.core.objects import CommitId
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.values import replace
from gitops_ds.notify.metrics import AGENTS, Metrics, MetricsSource

COMMIT = CommitId("a" * 40)
TALLY = NodeCounts(updated=5, node_fault=1, parked=2)
LOSSES = (
    NodeLoss("node-1", "gpu", LossCause.LABEL, "label disk=ssd was removed"),
    NodeLoss("node-2", "gpu", LossCause.LABEL, "the same"),
)


ROLLOUT = RolloutCounts(2, 3, 1, 4, 10, halted=True)


def agent(name: str = "agent") -> AgentStatus:
    return AgentStatus(
        "logging",
        name,
        False,
        HealthState.DEGRADED,
        "Synced",
        True,
        COMMIT,
        TALLY,
        LOSSES,
        ROLLOUT,
        "",
        {"cpu": 250},
    )


# a value of each field that differs from that of `agent()`
OTHER = AgentStatus(
    "tracing",
    "other",
    True,
    HealthState.HEALTHY,
    "OutOfSync",
    False,
    CommitId("b" * 40),
    NodeCounts(old=3),
    (),
    None,
    "window",
    {"memory": 64},
)


def scraped(*agents: AgentStatus) -> str:
    inside = MetricsSource(
        lambda: agents,
        lambda: {("GET", "200"): 7, ("PATCH", ""): 1},
        lambda: 3,
        lambda: {"pods": 12.5},
    )
    metrics = Metrics(inside)
    metrics.handle(deployer.ReconcileTimed(1.0, 0.2, well=True))
    metrics.handle(deployer.GitTimed(1.0, 0.2, well=False))
    refusals = (
        Skipped(SkipReason.SHARE_OF_NODES, "too many"),
        Skipped(SkipReason.SHARE_OF_NODES, "too many"),
        Skipped(SkipReason.CONFLICT, "theirs"),
    )
    metrics.handle(deployer.Reconciled(1.0, COMMIT, 0, refusals))
    return metrics.text().decode()


@pytest.mark.system
def test_prometheus_own_linter_finds_nothing() -> None:
    done = subprocess.run(
        ("promtool", "check", "metrics"),
        input=scraped(agent()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_status_of_agents_is_exposed() -> None:
    lines = scraped(agent()).splitlines()
    which = 'name="agent",namespace="logging"'
    for line in (
        (
            f'gitopsds_resource_info{{health="Degraded",{which},ready="false",revision="{COMMIT}",'
            'suspended="true",sync="Synced"} 1.0'
        ),
        f'gitopsds_daemonset_nodes{{{which},state="updated"}} 5.0',
        f'gitopsds_daemonset_nodes{{{which},state="node_fault"}} 1.0',
        f'gitopsds_coverage_lost_nodes{{cause="label",{which},pool="gpu"}} 2.0',
        f'gitopsds_rollout_nodes{{{which},state="at_risk"}} 2.0',
        f'gitopsds_rollout_nodes{{{which},state="parked"}} 1.0',
        f'gitopsds_rollout_nodes{{{which},state="proved"}} 4.0',
        f'gitopsds_rollout_nodes{{{which},state="total"}} 10.0',
        f"gitopsds_rollout_at_risk_limit{{{which}}} 3.0",
        f"gitopsds_rollout_halted{{{which}}} 1.0",
        "gitopsds_paused 1.0",
        'gitopsds_api_requests_total{code="200",method="GET"} 7.0',
        "gitopsds_queue_depth 3.0",
        'gitopsds_watch_age_seconds{resource="pods"} 12.5',
        'gitopsds_prune_refused_total{guard="share-of-nodes"} 1.0',
        "gitopsds_reconcile_duration_seconds_count 1.0",
        'gitopsds_git_fetch_duration_seconds_count{result="failure"} 1.0',
    ):
        assert line in [_sorted(exposed) for exposed in lines], line


def lines_of(one: AgentStatus) -> list[str]:
    """Without the times at which counters were created."""
    return [line for line in scraped(one).splitlines() if "_created" not in line]


@pytest.mark.parametrize("field", AgentStatus.__struct_fields__)
def test_each_value_of_an_agent_is_exported(field: str) -> None:
    changed = replace(agent(), **{field: getattr(OTHER, field)})
    assert lines_of(changed) != lines_of(agent()), (
        f"no metric has {field}: add it to `_agents` in gitops_ds/notify/metrics.py, and a value "
        "to OTHER"
    )


def test_no_value_of_an_agent_has_a_default() -> None:
    """So that mypy names `status_of`, which must pass it."""
    assert AgentStatus.__struct_defaults__ == (), "remove the default"


def _sorted(line: str) -> str:
    """Labels in the order of the alphabet."""
    match = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line)
    if not match:
        return line
    labels = ",".join(sorted(re.findall(r'[a-z]+="[^"]*"', match[2])))
    return f"{match[1]}{{{labels}}} {match[3]}"


def test_no_node_is_a_label_and_agents_are_bounded() -> None:
    text = scraped(*(agent(f"agent-{number}") for number in range(AGENTS + 5)))
    assert "node-1" not in text
    assert text.count("gitopsds_resource_info{") == AGENTS
    assert "gitopsds_agents_left_out 1.0" in text
