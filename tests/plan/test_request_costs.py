"""The cost of a change on all its nodes, as `check --base` and `plan` state it."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.live import Node
from gitops_ds.deploy.plan import rollout_impact
from gitops_ds.kube.apimachinery import request_costs

NODES = tuple(Node(f"n{number}", labels={"pool": "ab"[number % 2]}) for number in range(6))


def agent(cpu: str = "", memory: str = "", pool: str = "") -> dict[str, Any]:
    requests = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}
    spec: dict[str, Any] = {"containers": [{"name": "a", "resources": {"requests": requests}}]}
    if pool:
        spec["nodeSelector"] = {"pool": pool}
    return {"spec": {"template": {"spec": spec}}}


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (None, agent("50m"), "requests +0.3 cores over all its nodes"),
        (agent("50m"), agent("100m"), "requests +50m cpu x 6 nodes = +0.3 cores"),
        (agent("50m", pool="a"), agent("50m"), "requests +0.15 cores over all its nodes"),
        (agent("1", "1Gi"), None, "requests -6 cores, -6Gi memory over all its nodes"),
        (agent("50m"), agent("50m"), ""),
        (None, agent(), ""),
        (None, agent("many"), ""),
    ],
)
def test_the_cost_is_that_of_each_pod_times_its_nodes(
    old: dict[str, Any] | None, new: dict[str, Any] | None, text: str
) -> None:
    costs = rollout_impact.costs(old, new, NODES)
    assert (request_costs.line(costs) if costs else "") == text
    assert rollout_impact.costs(old, new, None) == ()


def test_the_requests_of_an_agent_are_words() -> None:
    spec = agent("50m", "64Mi")["spec"]["template"]["spec"]
    requests = {name: amount * 7 for name, amount in request_costs.of_pod(spec).items()}
    assert request_costs.words(requests) == "0.35 cores, 448Mi memory"
