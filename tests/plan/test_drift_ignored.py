"""Fields that are left alone: taken out where another owns them, applied as they are where only we
do.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_ds.core import names
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, Body
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.ownership.ignore_differences import IgnoreRule
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.testing import simulator
from tests import profiles
from tests.plan.world import World, config_map, daemonset, play

LIMITS = "/spec/template/spec/containers/agent/resources/limits"
CPU = ("spec", "template", "spec", "containers", 0, "resources", "limits", "cpu")


def agent(cpu: str = "100m", image: str = "ours:1", **annotations: str) -> dict[str, Any]:
    container = {
        "name": "agent",
        "image": image,
        "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}},
    }
    body = daemonset(containers=[container])
    if annotations:
        body["metadata"]["annotations"] = annotations
    return body


def cpu_patch(cpu: str) -> dict[str, Any]:
    container = {"name": "agent", "resources": {"limits": {"cpu": cpu}}}
    return {"spec": {"template": {"spec": {"containers": [container]}}}}


async def live(cluster: simulator.SimulatedCluster) -> Body:
    return await cluster.get(DAEMONSET, "default", "agent")


def at(body: Body, path: tuple[str | int, ...]) -> Any:
    value: Any = body
    for step in path:
        value = value[step]
    return value


def options(*rules: IgnoreRule, drift: DriftPolicy = DriftPolicy.CORRECT) -> ApplyOptions:
    return ApplyOptions(patience=0, ignore=rules, drift=drift)


MATCHING = [
    IgnoreRule(("/spec/template/spec/containers/0/resources",)),
    IgnoreRule(managers=("vpa",)),
    IgnoreRule((LIMITS,), kind="Daemon*", namespace="def*", name="agent"),
]


@pytest.mark.parametrize("rule", MATCHING)
async def test_ignored_fields_of_another_writer_are_not_drift_and_stay_when_the_rest_is_applied(
    deployer: World, cluster: simulator.SimulatedCluster, /, rule: IgnoreRule
) -> None:
    await deployer.apply({"a.yaml": agent()}, options=options(rule))
    assert at(await live(cluster), CPU) == "100m"
    await cluster.client("vpa").patch(
        DAEMONSET, "default", "agent", cpu_patch("300m"), type=PatchType.STRATEGIC
    )
    await deployer.apply({"a.yaml": agent()}, options=options(rule))
    assert at(await live(cluster), CPU) == "300m"
    assert (await deployer.apply({"a.yaml": agent()}, options=options(rule))).writes == 0
    done = await deployer.apply(
        {"a.yaml": agent(cpu="200m", image="ours:2")}, options=options(rule)
    )
    body = await live(cluster)
    assert done.refusals == ()
    assert (at(body, CPU), at(body, (*CPU[:5], "image"))) == ("300m", "ours:2")
    assert at(body, (*CPU[:-1], "memory")) == "1Gi"


OTHERS = [
    IgnoreRule((LIMITS,), ("hpa",)),
    IgnoreRule((LIMITS,), kind="ConfigMap"),
    IgnoreRule((LIMITS,), namespace="other"),
]


@pytest.mark.parametrize("rule", OTHERS)
async def test_a_rule_for_something_else_changes_nothing(
    deployer: World, cluster: simulator.SimulatedCluster, /, rule: IgnoreRule
) -> None:
    await deployer.apply({"a.yaml": agent()}, options=options(rule))
    await cluster.client("vpa").patch(
        DAEMONSET, "default", "agent", cpu_patch("300m"), type=PatchType.STRATEGIC
    )
    await deployer.apply({"a.yaml": agent()}, options=options(rule))
    assert at(await live(cluster), CPU) == "100m"


async def test_an_object_can_list_its_own_ignored_fields(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    body = agent(**{names.IGNORE_FIELDS: f"{LIMITS}/cpu, /metadata/labels/team"})
    await deployer.apply({"a.yaml": body}, options=options(drift=DriftPolicy.REPORT))
    await cluster.client("vpa").patch(
        DAEMONSET, "default", "agent", cpu_patch("300m"), type=PatchType.STRATEGIC
    )
    done = await deployer.apply({"a.yaml": body}, options=options(drift=DriftPolicy.REPORT))
    assert (done.refusals, at(await live(cluster), CPU)) == ((), "300m")


async def test_a_manager_of_a_whole_list_owns_the_whole_list(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    rule, files = IgnoreRule(managers=("injector",)), {"a.yaml": args("--one", "--two")}
    await deployer.apply(files, options=options(rule))
    container = {"name": "agent", "args": ["--three"]}
    patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
    await cluster.client("injector").patch(
        DAEMONSET, "default", "agent", patch, type=PatchType.STRATEGIC
    )
    assert (await deployer.apply(files, options=options(rule))).refusals == ()
    assert at(await live(cluster), (*CPU[:5], "args")) == ["--three"]


def args(*words: str) -> dict[str, Any]:
    return daemonset(containers=[{"name": "agent", "image": "a", "args": list(words)}])


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.dictionaries(KEYS, st.sampled_from(["1", "2", "3"]))


@settings(deadline=None, max_examples=profiles.examples(60))
@given(VALUES, VALUES, VALUES, st.sets(KEYS, min_size=1), st.booleans())
def test_an_ignored_field_stays_as_it_is_and_a_second_pass_writes_nothing(
    first: dict[str, str],
    theirs: dict[str, str],
    second: dict[str, str],
    ignored: set[str],
    by_apply: bool,
) -> None:
    async def scene(deployer: World, cluster: simulator.SimulatedCluster) -> None:
        rule = IgnoreRule(tuple(f"/data/{key}" for key in sorted(ignored)))
        await deployer.apply({"c.yaml": config_map("c", **first)}, options=options(rule))
        other = cluster.client("other")
        if by_apply:
            await other.apply(CONFIG_MAP, config_map("c", **theirs), manager="other", force=True)
        else:
            await other.patch(CONFIG_MAP, "default", "c", {"data": theirs}, type=PatchType.MERGE)
        before = dict((await cluster.get(CONFIG_MAP, "default", "c")).get("data") or {})
        again = ApplyOptions(patience=0, ignore=(rule,), force_conflicts=True)
        await deployer.apply({"c.yaml": config_map("c", **second)}, options=again)
        after = dict((await cluster.get(CONFIG_MAP, "default", "c")).get("data") or {})
        for key in ignored & before.keys() & second.keys():
            assert after[key] == before[key]
        for key in second.keys() - ignored:
            assert after[key] == second[key]
        assert (
            await deployer.apply({"c.yaml": config_map("c", **second)}, options=again)
        ).writes == 0

    play(scene, nodes=0)
