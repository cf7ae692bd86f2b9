"""Passes of the deployer on a simulated cluster: who owns what, what is taken, forced, left,
deleted, remembered.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import PatchType, Selection
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, NAMESPACE, Body, Digest, Key
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.core.values import replace
from gitops_ds.deploy import state_store
from gitops_ds.ownership.options import ApplyOptions, Limit
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator.faults import SimulatedRequest
from tests import schemas
from tests.plan.world import PRUNING, World, config_map, daemonset, namespace, play, pruning

AGENT = Key("apps", "DaemonSet", "default", "agent")


async def live_agent(cluster: simulator.SimulatedCluster) -> Body:
    return await cluster.get(DAEMONSET, "default", "agent")


def image_of(body: Body) -> str:
    return str(body["spec"]["template"]["spec"]["containers"][0]["image"])


async def test_a_second_pass_sends_no_write_and_no_dry_run(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    files = {"agent.yaml": daemonset(), "config.yaml": config_map("settings", a="1")}
    assert (await deployer.apply(files)).writes == 2
    asking: Any = deployer.cluster
    asking.count.reset()
    again = await deployer.apply(files)
    assert (again.writes, asking.count.writes, asking.count.of("dry-run apply")) == (0, 0, 0)


async def test_a_commit_elsewhere_writes_no_object_and_moves_no_annotation(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    first = await deployer.apply({"agent.yaml": daemonset()}, "first")
    before = await live_agent(cluster)
    second = await deployer.apply({"agent.yaml": daemonset(), "README.md": "words"}, "second")
    assert second.writes == 0
    assert await live_agent(cluster) == before
    assert before["metadata"]["annotations"][names.COMMIT] == first.plan.commit
    assert (await deployer.state()).last_good == second.plan.commit


async def test_the_commit_moves_with_the_object_it_changes_and_with_no_other(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    first = await deployer.apply(
        {"a.yaml": daemonset("agent"), "b.yaml": daemonset("other")}, "first"
    )
    second = await deployer.apply(
        {"a.yaml": daemonset("agent", image="x:2"), "b.yaml": daemonset("other")}, "second"
    )
    assert second.written == ("update DaemonSet default/agent",)
    other = await cluster.get(DAEMONSET, "default", "other")
    commits = [
        body["metadata"]["annotations"][names.COMMIT] for body in (await live_agent(cluster), other)
    ]
    assert commits == [second.plan.commit, first.plan.commit]


async def test_a_field_removed_from_git_is_removed_also_from_an_object_of_kubectl_apply(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    kubectl = cluster.client("kubectl-client-side-apply")
    await kubectl.create(
        DAEMONSET, daemonset(priorityClassName="system-node-critical", hostNetwork=True)
    )
    done = await deployer.apply({"agent.yaml": daemonset(hostNetwork=True)})
    assert done.refusals == ()
    spec = (await live_agent(cluster))["spec"]["template"]["spec"]
    assert "priorityClassName" not in spec
    assert spec["hostNetwork"] is True
    assert [
        change.path for change in done.plan.writes[0].fields if "priorityClassName" in change.path
    ] != []
    assert (await deployer.apply({"agent.yaml": daemonset()})).writes == 1
    assert not (await live_agent(cluster))["spec"]["template"]["spec"].get("hostNetwork")


FOREIGN = [
    ({"labels": {names.OWNER_LABEL: "another"}}, "gitops-ds of another"),
    ({"annotations": {"meta.helm.sh/release-name": "logs"}}, "Helm release logs"),
    (
        {"annotations": {"argocd.argoproj.io/tracking-id": "fleet:apps/DaemonSet:default/agent"}},
        "Argo CD application fleet",
    ),
    ({"labels": {"kustomize.toolkit.fluxcd.io/name": "fleet"}}, "Flux kustomize fleet"),
    ({"labels": {"helm.toolkit.fluxcd.io/name": "logs"}}, "Flux helm logs"),
    ({"labels": {"kapp.k14s.io/app": "17"}}, "kapp app 17"),
]


@pytest.mark.parametrize(("marks", "name"), FOREIGN)
async def test_objects_of_another_tool_are_taken_over_only_with_adopt(
    deployer: World, cluster: simulator.SimulatedCluster, /, marks: dict[str, Any], name: str
) -> None:
    theirs = daemonset(image="theirs:1")
    theirs["metadata"] = {**theirs["metadata"], **marks}
    manager = names.FIELD_MANAGER if "gitops-ds" in name else "their-tool"
    await cluster.apply(DAEMONSET, theirs, manager=manager)
    before = await live_agent(cluster)
    same = {"agent.yaml": daemonset(image="theirs:1")}
    refused = await deployer.apply(same)
    assert (refused.writes, refused.guards) == (0, ["owned-by-other"])
    assert name in refused.refusals[0].message
    assert "--adopt" in refused.refusals[0].message
    assert await live_agent(cluster) == before
    taken = await deployer.apply(same, options=ApplyOptions(adopt=True, patience=0))
    assert (taken.writes, taken.refusals) == (1, ())
    assert (await live_agent(cluster))["metadata"]["labels"][names.OWNER_LABEL] == "test"


async def test_a_conflict_names_manager_and_field_and_is_won_by_force_alone(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    body = daemonset(image="theirs:1")
    await cluster.apply(DAEMONSET, body, manager="autoscaler")
    files = {"agent.yaml": daemonset(image="ours:1"), "config.yaml": config_map("settings")}
    refused = await deployer.apply(files)
    assert refused.guards == ["conflict"]
    message = refused.refusals[0].message
    assert "autoscaler" in message
    assert "image" in message
    assert "--force-conflicts" in message
    assert refused.written == ("create ConfigMap default/settings",), (
        "the others are nevertheless applied"
    )
    assert image_of(await live_agent(cluster)) == "theirs:1"
    forced = await deployer.apply(files, options=ApplyOptions(force_conflicts=True, patience=0))
    assert forced.refusals == ()
    assert image_of(await live_agent(cluster)) == "ours:1"


@pytest.mark.parametrize("policy", ["correct", "report"])
@pytest.mark.parametrize("manager", [names.FIELD_MANAGER, "autoscaler"])
async def test_who_takes_fields_of_an_applied_object_keeps_no_later_commit_from_it(
    deployer: World, cluster: simulator.SimulatedCluster, /, manager: str, policy: str
) -> None:
    """Neither visibly, with another value, nor as a second owner of the same value."""
    await deployer.apply({"agent.yaml": daemonset(image="ours:1")})
    container = {"name": "agent", "image": "ours:1"}
    same = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": "agent",
            "namespace": "default",
            "annotations": {names.DRIFT: policy},
        },
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    await cluster.apply(DAEMONSET, same, manager="second", force=True)
    second = await deployer.apply({"agent.yaml": daemonset(image="ours:2")})
    assert (second.writes, second.refusals) == (1, ())
    await _set_image(cluster, manager)
    third = await deployer.apply({"agent.yaml": daemonset(image="ours:3")})
    assert (third.writes, third.refusals) == (1, ())
    assert image_of(await live_agent(cluster)) == "ours:3"


async def _set_image(cluster: simulator.SimulatedCluster, manager: str = "kubectl-set") -> None:
    patch = {
        "spec": {"template": {"spec": {"containers": [{"name": "agent", "image": "changed:1"}]}}}
    }
    await cluster.client(manager).patch(
        DAEMONSET, "default", "agent", patch, type=PatchType.STRATEGIC
    )


async def test_the_annotation_of_an_agent_overrides_the_setting_of_the_deployer(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    body = daemonset(image="ours:1")
    body["metadata"]["annotations"] = {names.DRIFT: "correct"}
    options = ApplyOptions(drift=DriftPolicy.REPORT, patience=0)
    await deployer.apply({"agent.yaml": body}, options=options)
    await _set_image(cluster)
    assert (await deployer.apply({"agent.yaml": body}, options=options)).refusals == ()
    assert image_of(await live_agent(cluster)) == "ours:1"


async def test_objects_of_kubectl_are_taken_over_even_if_drift_is_only_reported(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await cluster.client("kubectl-client-side-apply").create(DAEMONSET, daemonset(image="old:1"))
    done = await deployer.apply(
        {"agent.yaml": daemonset(image="ours:1")},
        options=ApplyOptions(drift=DriftPolicy.REPORT, patience=0),
    )
    assert (done.writes, done.refusals) == (1, ())
    assert image_of(await live_agent(cluster)) == "ours:1"


TWO = {"a.yaml": daemonset("agent"), "b.yaml": daemonset("other")}


async def test_an_object_removed_from_git_is_kept_and_reported_unless_pruning_is_enabled(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(TWO)
    kept = await deployer.apply({"b.yaml": TWO["b.yaml"]})
    assert (kept.writes, kept.guards) == (0, ["prune-off"])
    assert AGENT in kept.state.inventory
    gone = await deployer.apply(
        {"b.yaml": TWO["b.yaml"]},
        options=pruning(share=1.0),
    )
    assert gone.written == ("delete DaemonSet default/agent",)
    assert AGENT not in gone.state.inventory
    with pytest.raises(errors.NotFound):
        await live_agent(cluster)


async def test_objects_of_another_repository_are_nobodys_orphans(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    neighbour = World(cluster.client(), owner="neighbour")
    await neighbour.apply({"a.yaml": daemonset("agent")})
    await deployer.apply({"b.yaml": daemonset("other")})
    draft = await deployer.draft({"b.yaml": daemonset("other")}, options=PRUNING)
    assert draft.plan.refusals == ()
    assert [change.key.name for change in draft.plan.changes] == ["other"]


async def test_a_refused_delete_stays_in_the_inventory_and_a_later_pass_deletes_it(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    files = {"a.yaml": config_map("settings"), "b.yaml": config_map("words")}
    await deployer.apply(files)
    client: Any = deployer.cluster

    def faults(request: SimulatedRequest) -> errors.ClusterError | None:
        return simulator.faults.failure(403) if request.verb == "delete" else None

    client.faults = faults
    rest = {"b.yaml": files["b.yaml"]}
    refused = await deployer.apply(rest, "second", PRUNING)
    key = Key("", "ConfigMap", "default", "settings")
    assert (refused.writes, key in refused.state.inventory) == (0, True)
    client.faults = simulator.faults.none
    assert (await deployer.apply(rest, "second", PRUNING)).written == (
        "delete ConfigMap default/settings",
    )


async def test_nothing_is_deleted_when_something_before_it_was_not_applied(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply({"a.yaml": config_map("old")})
    client: Any = deployer.cluster
    client.faults = lambda request: (
        simulator.faults.failure(403) if request.name == "new" and request.verb == "apply" else None
    )
    done = await deployer.apply({"a.yaml": config_map("new")}, "second", PRUNING)
    assert (done.writes, sorted(done.guards)) == (0, ["refused", "waits"])
    assert await cluster.get(CONFIG_MAP, "default", "old")


def test_a_process_that_dies_in_the_middle_forgets_nothing() -> None:
    """For any last request, the next pass converges, and what was made by then can still be
    pruned.
    """
    files = {"a.yaml": config_map("a"), "b.yaml": config_map("b"), "c.yaml": daemonset()}

    def dies_at(last: int) -> None:
        async def scene(deployer: World, cluster: simulator.SimulatedCluster) -> None:
            doomed = cluster.client()
            doomed.faults = lambda request: (
                simulator.Silence(1.0) if request.number > last else None
            )
            with pytest.raises(errors.ClusterUnreachable):
                await World(doomed).apply(files)
            made = {
                body["metadata"]["name"]
                for body in (await cluster.list(CONFIG_MAP, Selection(namespace="default"))).items
            }
            # The next commit has lost the ConfigMaps: all that the dead process made of them must
            # go.
            options = pruning(share=1.0, deletes=Limit())
            done = await deployer.apply({"c.yaml": files["c.yaml"]}, "second", options)
            assert done.state.inventory == {AGENT}
            left = {
                body["metadata"]["name"]
                for body in (await cluster.list(CONFIG_MAP, Selection(namespace="default"))).items
            }
            assert not left & made & {"a", "b"}
            assert (
                await deployer.apply({"c.yaml": files["c.yaml"]}, "second", options)
            ).writes == 0

        play(scene)

    async def count(deployer: World, cluster: simulator.SimulatedCluster) -> None:
        await deployer.apply(files)
        client: Any = deployer.cluster
        numbers.append(client.count.total)

    numbers: list[int] = []
    play(count)
    for last in range(numbers[0]):
        dies_at(last)


async def test_agents_wait_for_those_they_depend_on(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    files = {
        "agents/cni/daemonset.yaml": daemonset("cni"),
        "agents/cni/agent.yaml": "hold: false\n",
        "agents/logs/daemonset.yaml": daemonset("logs"),
        "agents/logs/agent.yaml": "dependsOn: [cni]\n",
    }
    done = await deployer.apply(files)
    assert (done.written, done.guards) == (("create DaemonSet default/cni",), ["waits"])
    status = {
        "observedGeneration": 1,
        "desiredNumberScheduled": 3,
        "updatedNumberScheduled": 3,
        "numberAvailable": 3,
    }
    await cluster.patch(DAEMONSET, "default", "cni", {"status": status}, subresource="status")
    assert (await deployer.apply(files)).written == ("create DaemonSet default/logs",)


async def test_the_state_spans_several_config_maps_and_survives_a_crash_between_them(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    def big(salt: str) -> DeployerState:
        keys = [Key("", "ConfigMap", f"space-{n}", f"{salt}-{n * 7919}") for n in range(200)]
        return DeployerState(
            inventory=frozenset(keys), digests={key: Digest(f"{hash(key):x}") for key in keys}
        )

    await cluster.create(NAMESPACE, namespace("gitops-ds"))
    first = await state_store.save(cluster, "gitops-ds", "big", big("a"), chunk=1000)
    parts = len((await cluster.list(CONFIG_MAP, Selection(namespace="gitops-ds"))).items)
    assert parts > 3
    assert await state_store.load(cluster, "gitops-ds", "big") == first
    dying = cluster.client()
    dying.faults = lambda request: (
        simulator.faults.failure(503) if request.verb in ("update", "patch") else None
    )
    with pytest.raises(errors.ServerFault):
        await state_store.save(
            dying, "gitops-ds", "big", replace(big("b"), version=first.version), chunk=1000
        )
    assert await state_store.load(cluster, "gitops-ds", "big") == first
    second = await state_store.save(
        cluster, "gitops-ds", "big", replace(big("c"), version=first.version), chunk=1000
    )
    assert await state_store.load(cluster, "gitops-ds", "big") == second


async def test_two_first_passes_at_once_keep_one_whole_state(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    neighbour = World(cluster.client())
    one = await deployer.draft({"a.yaml": config_map("a"), "b.yaml": config_map("b")})
    two = await neighbour.draft({"a.yaml": config_map("a"), "b.yaml": config_map("b")})
    await deployer.carry_out(one)
    await neighbour.carry_out(two)
    assert {key.name for key in (await deployer.state()).inventory} == {"a", "b"}


@pytest.mark.parametrize("was_good", [True, False], ids=["good", "not good before"])
@pytest.mark.parametrize(
    ("created", "is_refused"),
    [((), False), (("b",), False), (("b",), True)],
    ids=["corrects", "creates an object", "creates a refused object"],
)
async def test_a_commit_that_is_approved_during_a_pass_of_the_last_commit_remains(
    deployer: World,
    cluster: simulator.SimulatedCluster,
    /,
    created: tuple[str, ...],
    is_refused: bool,
    was_good: bool,
) -> None:
    def faults(request: SimulatedRequest) -> errors.ClusterError | None:
        return simulator.faults.failure(403) if is_refused and request.name == "b" else None

    user = World(cluster.client())
    client: Any = deployer.cluster
    files = {"agent.yaml": daemonset(image="x:2")}
    await deployer.apply(files, "second")
    before = await deployer.state()
    before = before if was_good else replace(before, last_good=None)
    approved = (await user.apply({"agent.yaml": daemonset(image="x:1")}, "first")).plan.commit
    # The pass began after the user's write, and before the user's state.
    more = {f"{name}.yaml": config_map(name) for name in created}
    correction = await deployer.draft({**files, **more}, "second")
    client.faults = faults
    await deployer.carry_out(replace(correction, state=before))
    assert image_of(await live_agent(cluster)) == "x:2"
    state = await deployer.state()
    assert (state.last_good, state.last_attempted) == (approved, approved)


async def test_a_commit_that_is_applied_at_the_same_time_counts(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    user = World(cluster.client())
    await deployer.apply({"a.yaml": config_map("a", x="2")}, "second")
    newer = await deployer.draft({"a.yaml": config_map("a", x="3")}, "third")
    await user.apply({"a.yaml": config_map("a", x="1")}, "first")
    applied = await deployer.carry_out(newer)
    state = await deployer.state()
    assert (state.last_good, state.last_attempted) == (applied.plan.commit,) * 2


async def test_the_state_is_by_its_schema(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply({"a.yaml": config_map("a"), "b.yaml": daemonset()})
    body = await cluster.get(CONFIG_MAP, "gitops-ds", "gitops-ds-test")
    state = json.loads(gzip.decompress(base64.b64decode(body["binaryData"]["state.json.gz"])))
    schemas.check(state, "state")
    assert state["inventory"] == [
        ["", "ConfigMap", "default", "a"],
        ["apps", "DaemonSet", "default", "agent"],
    ]
    assert list(state["commits"]) == list(state["causes"]) == ["default/agent"]


async def test_a_state_of_another_owner_is_reported_with_its_name(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply({"a.yaml": config_map("a")})
    await cluster.patch(
        CONFIG_MAP, "gitops-ds", "gitops-ds-test", {"binaryData": {"state.json.gz": "AAAA"}}
    )
    with pytest.raises(
        errors.ClusterError, match=r"ConfigMap gitops-ds/gitops-ds-test has no valid state"
    ):
        await deployer.apply({"a.yaml": config_map("a")})
