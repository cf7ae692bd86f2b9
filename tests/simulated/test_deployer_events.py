"""What the cluster's own event log says of the deployer."""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.cluster import simulated
from gitops_ds.cluster.simulated import virtual_time
from gitops_ds.controller import events
from gitops_ds.model import deployment
from gitops_ds.model.change import Refusal
from gitops_ds.model.finding import Place, refusal
from gitops_ds.model.objects import EVENT, NAMESPACE, CommitId
from gitops_ds.model.record import Record

COMMIT = CommitId("a" * 40)
REASONS = [
    (deployment.NewCommit(1.0, COMMIT, "one", "Ann"), "NewCommit", False),
    (deployment.NewCommit(1.0, COMMIT, "one", "Ann", rewritten=True), "HistoryRewritten", True),
    (deployment.CommitRejected(1.0, COMMIT, (refusal("DS003", "a typo", Place("a.yaml", 3, 1)),)), "CommitRejected", True),
    (deployment.PassEnded(1.0, COMMIT, 3, ()), "Applied", False),
    (deployment.PassEnded(1.0, COMMIT, 0, ()), None, False),
    (deployment.PassEnded(1.0, COMMIT, 0, (Refusal("share-of-nodes", "9 of 10 nodes would lose an agent"),)), "PruneRefused", True),
    (deployment.PassFailed(1.0, "Git is away", 5.0), "PassFailed", True),
    (deployment.Unchanged(1.0, COMMIT), None, False),
]


@pytest.mark.parametrize(("record", "reason", "warning"), REASONS)
def test_a_fact_is_one_event_with_a_reason(record: Record, reason: str | None, warning: bool) -> None:
    found = events.told(record)
    assert (found.reason, found.warning) == (reason, warning) if found else reason is None


def test_events_stand_on_the_states_config_map_and_never_hinder() -> None:
    async def main() -> None:
        async with simulated.Cluster() as cluster:
            told = events.Events(cluster.client(), "gitops-ds", "gitops-ds-x")
            writing = asyncio.create_task(told.run())
            told.hear(deployment.PassFailed(1.0, "too early: there is no namespace yet", None))
            await asyncio.sleep(1)
            await cluster.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gitops-ds"}})
            for at in range(3):
                told.hear(deployment.NewCommit(float(at), COMMIT, "one", "Ann", rewritten=True))
            await asyncio.sleep(1)
            found = [body for body in (await cluster.list(EVENT)).items if body["source"].get("component") == events.COMPONENT]
            assert [body["reason"] for body in found] == ["HistoryRewritten"] * 3
            assert {body["involvedObject"]["name"] for body in found} == {"gitops-ds-x"}
            writing.cancel()

    virtual_time.run(main())
