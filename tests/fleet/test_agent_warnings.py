"""The warning events that one command reads: of each DaemonSet before a second pod of any."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from gitops_ds.fleet import agent_healths
from gitops_ds.model.values import replace
from tests.controller.test_pod_warnings import EventServer, unready

AGENTS, PODS = 15, 5


def test_each_of_many_failing_agents_has_its_warning() -> None:
    server, seen = EventServer(), unready(PODS).observe()
    agents = [
        replace(seen, pods=tuple(replace(pod, uid=f"{agent}-{pod.uid}") for pod in seen.pods))
        for agent in range(AGENTS)
    ]
    cluster: Any = server
    asyncio.run(agent_healths.read(cluster, agents, has_nodes=True))
    read = Counter(fields.partition("=")[2].partition("-")[0] for _, fields in server.read)
    assert len(read) == AGENTS
    assert read.total() == 40
    assert max(read.values()) <= 3
