"""Guards treat updates as they treat deletions, name what they hold back, and an approval is for
the reviewed plan.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.events.deployer import Reconciled
from gitops_ds.core.live import Taint
from gitops_ds.core.objects import DAEMONSET, Body, CommitId
from gitops_ds.core.values import replace
from gitops_ds.deploy import reports
from gitops_ds.deploy.plan import guard_limits
from gitops_ds.notify import log_lines
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.ownership.permissions import Impersonation
from gitops_ds.testing import simulator
from tests.plan import world
from tests.plan.test_prune_scenes import pod_of
from tests.plan.world import KEPT, PRUNING, World, config_map, daemonset, pruning

play = world.play

FILES = {**KEPT, "agent.yaml": daemonset("agent")}
AFFINITY = {
    "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-0"]}]
}


NARROWER = [
    {"nodeSelector": {"disktype": "ssd"}},
    {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [AFFINITY]}
            }
        }
    },
]


@pytest.mark.parametrize("spec", NARROWER)
async def test_an_update_that_removes_agents_from_nodes_needs_approval(
    deployer: World, cluster: simulator.SimulatedCluster, /, spec: dict[str, Any]
) -> None:
    await deployer.apply(FILES)
    files = {"kept.yaml": config_map("kept", a="1"), "agent.yaml": daemonset("agent", **spec)}
    refused = await deployer.apply(files, "second")
    assert (refused.guards, refused.written) == (
        ["loses-nodes"],
        ("update ConfigMap default/kept",),
    )
    assert "DaemonSet default/agent" in refused.refusals[0].message
    assert refused.plan.hash in refused.refusals[0].message
    assert refused.state.last_good != refused.plan.commit, "the commit is not applied as a whole"
    assert [str(change.key) for change in refused.plan.held] == ["DaemonSet default/agent"]
    done = await deployer.apply(files, "second", pruning(refused.plan.hash))
    assert done.written == ("update DaemonSet default/agent",)
    assert done.state.last_good == done.plan.commit


async def test_a_removed_toleration_counts_where_the_taint_evicts(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    taint = simulator.NodeSpec("tainted", taints=(Taint("gpu", "NoExecute"),))
    cluster.add_nodes([taint])
    await deployer.apply({"agent.yaml": daemonset("agent", tolerations=[{"operator": "Exists"}])})
    refused = await deployer.apply(FILES, "second", pruning(share=0.0))
    assert refused.guards == ["loses-nodes"]
    assert "tainted" in refused.refusals[0].message
    assert (await deployer.apply(FILES, "second", pruning(share=0.25))).guards == []


async def test_deletions_and_updates_are_weighed_together(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    on = {number: {"kubernetes.io/hostname": f"node-{number}"} for number in range(3)}
    both = {
        **KEPT,
        "a.yaml": daemonset("a", nodeSelector=on[0]),
        "b.yaml": daemonset("b", nodeSelector=on[1]),
    }
    await deployer.apply(both)
    rest = {**KEPT, "b.yaml": daemonset("b", nodeSelector=on[2])}
    refused = await deployer.apply(rest, "second", pruning(nodes=1))
    assert sorted(refused.guards) == ["loses-nodes", "share-of-nodes"]
    assert "2 of 3 nodes" in refused.refusals[-1].message
    assert (await deployer.apply(rest, "second", pruning(nodes=2))).guards == []


async def test_drift_that_widened_an_agent_is_corrected_without_approval(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    narrow = {"agent.yaml": daemonset("agent", nodeSelector={"kubernetes.io/hostname": "node-0"})}
    await deployer.apply(narrow)
    patch = {"spec": {"template": {"spec": {"nodeSelector": None}}}}
    await cluster.client("kubectl-edit").patch(
        DAEMONSET, "default", "agent", patch, type=PatchType.MERGE
    )
    assert (await deployer.apply(narrow)).written == ("update DaemonSet default/agent",)


async def test_an_approval_does_not_cover_another_policy_nor_more_nodes_but_fewer(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    body = daemonset("agent")
    await deployer.apply({**KEPT, "agent.yaml": body})
    hash = (await deployer.draft(KEPT, "second", PRUNING)).plan.hash
    assert hash.endswith("-3")
    patch: Body = {"metadata": {"annotations": {names.PRUNE: "foreground"}}}
    await cluster.client("people").patch(DAEMONSET, "default", "agent", patch, type=PatchType.MERGE)
    assert (await deployer.apply(KEPT, "second", pruning(hash))).guards == ["share-of-nodes"]
    patch = {"metadata": {"annotations": {names.PRUNE: None}}}
    await cluster.client("people").patch(DAEMONSET, "default", "agent", patch, type=PatchType.MERGE)
    cluster.add_nodes([simulator.NodeSpec("node-9")])
    assert (await deployer.apply(KEPT, "second", pruning(hash))).guards == ["share-of-nodes"]
    hash = (await deployer.draft(KEPT, "second", PRUNING)).plan.hash
    cluster.remove_node("node-9")
    assert (await deployer.apply(KEPT, "second", pruning(hash))).written == (
        "delete DaemonSet default/agent",
    )


def test_the_number_of_an_approval_is_a_ceiling() -> None:
    assert guard_limits.covers("abc-3", "abc-3")
    assert guard_limits.covers("abc-3", "abc-2")
    assert guard_limits.covers("abc-3", "abc")
    assert not guard_limits.covers("abc-3", "abc-4")
    assert not guard_limits.covers("abc", "abc-1")
    assert not guard_limits.covers("abd-3", "abc-3")
    assert not guard_limits.covers("", guard_limits.hash_of("abc", 0))
    assert not guard_limits.covers("abc-" + "9" * 5000, "abc-1")
    assert guard_limits.covers("abc-" + "9" * 9, "abc-1")
    assert not guard_limits.covers("abc-" + "9" * 10, "abc-1")


async def test_orphaning_loses_no_node_and_delays_no_other_deletion(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    orphan = daemonset("orphan")
    orphan["metadata"]["annotations"] = {names.PRUNE: "orphan"}
    await deployer.apply({**KEPT, "agent.yaml": daemonset("agent"), "orphan.yaml": orphan})
    for name in ("agent", "orphan"):
        await pod_of(cluster, name)
    first = await deployer.apply(FILES, "second", pruning(nodes=0))
    assert (first.guards, first.written) == ([], ("delete DaemonSet default/orphan",))
    draft = await deployer.draft(KEPT, "third", pruning(nodes=0))
    second = await deployer.apply(KEPT, "third", pruning(draft.plan.hash, nodes=0))
    assert (second.guards, second.written) == ([], ("delete DaemonSet default/agent",))


async def test_an_annotation_in_the_cluster_has_no_effect_if_only_git_may_set_it(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    by_git = replace(pruning(share=1.0), live_annotations=False)
    await deployer.apply(FILES)
    marks = {names.DRIFT: "report", names.SUSPEND: "true", names.PRUNE: "disabled"}
    containers = [{"name": "agent", "image": "evil:1"}]
    patch = {
        "metadata": {"annotations": marks},
        "spec": {"template": {"spec": {"containers": containers}}},
    }
    await cluster.client("tenant").patch(DAEMONSET, "default", "agent", patch, type=PatchType.MERGE)
    assert (await deployer.apply(FILES, "second")).writes == 0
    assert (await deployer.apply(FILES, "second", by_git)).written == (
        "update DaemonSet default/agent",
    )
    assert (await deployer.apply(KEPT, "third", by_git)).written == (
        "delete DaemonSet default/agent",
    )


async def test_an_annotation_in_git_has_effect_if_only_git_may_set_it(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    by_git = replace(pruning(share=1.0), live_annotations=False)
    body = daemonset("agent")
    body["metadata"]["annotations"] = {names.PRUNE: "disabled"}
    await deployer.apply({**KEPT, "agent.yaml": body})
    assert (await deployer.apply(KEPT, "second", by_git)).guards == ["prune-disabled"]


async def test_an_incomplete_reconciliation_is_reported(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    who = Impersonation(service_account="deployer")
    options = ApplyOptions(patience=0, impersonation=who)
    await deployer.apply({**KEPT, "space.yaml": world.namespace("tools")}, options=options)
    [ended] = [event for event in deployer.records if isinstance(event, Reconciled)]
    assert [refusal.reason for refusal in ended.failed] == ["impersonation"]
    assert reports.outcome(ended.commit or CommitId(""), ended).startswith("failure: commit")
    assert "is applied in part: 1 written, 1 not: " in (log_lines.line(ended) or "")
