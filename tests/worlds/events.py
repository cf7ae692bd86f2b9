"""The events of a world. After each event the world can be brought in sync with Git."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from gitops_ds.core import errors
from gitops_ds.core.cluster import Propagation
from gitops_ds.core.objects import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DAEMONSET,
    NAMESPACE,
    NODE,
    POD,
    Body,
    Resource,
)
from gitops_ds.testing.simulator import NodeSpec, Silence, SimulatedRequest, faults
from gitops_ds.testing.simulator.faults import RequestFault
from tests.worlds.world import NAME, SPACE, Disturbance, World, image_of

DENIALS = (400, 403, 404, 409, 422, 429, 500, 503)


def _template_or_nodes_changed(world: World) -> None:
    """DaemonSet, revisions or nodes changed: healthy pods may have to go."""
    world.changed_at = world.now


# --- Git


async def a_commit_changes_the_image(world: World) -> None:
    world.push(tag=world.wanted.tag + 1)


async def a_commit_has_a_typo_in_its_node_selector(world: World) -> None:
    """It would take the agent from every node: a guard has to hold it back."""
    before = world.live()
    world.push(selector="typo")
    for _ in range(30):
        await asyncio.sleep(5)
        live = world.live()
        if live is None or before is None or live["metadata"]["uid"] != before["metadata"]["uid"]:
            break  # one that is made has no agents to lose
        if live["spec"]["template"]["spec"].get("nodeSelector") == {"role": "typo"}:
            world.fail("a typo takes the agents from all nodes, past the guard")
            break
    world.push(selector="")


async def the_namespace_leaves_git(world: World) -> None:
    world.push(namespace=False)
    await asyncio.sleep(200)
    body = world.cluster.server.store.get(NAMESPACE, "", SPACE)
    if body is None or body["metadata"].get("deletionTimestamp"):
        world.fail("the Namespace is deleted, with an object that is still in Git")
    world.push(namespace=True)


async def the_settings_leave_git_and_return(world: World) -> None:
    world.push(settings=False)
    await asyncio.sleep(world.chance.uniform(1, 300))
    world.push(settings=True)


async def git_is_away_and_the_daemonset_is_deleted(world: World) -> None:
    world.git_away = world.history.unreachable = True
    await asyncio.sleep(5)
    await _gone(world, DAEMONSET, SPACE, NAME)
    for _ in range(24):
        await asyncio.sleep(10)
        if world.live() is not None:
            break
    else:
        # a new process does not know the last commit's files
        if not world.windows and not world.restarted:
            world.fail("while Git is away a deleted DaemonSet is not created again")
    world.history.unreachable = False


# --- nodes


async def a_node_joins(world: World) -> None:
    _template_or_nodes_changed(world)
    world.cluster.add_nodes(
        [NodeSpec(f"node-{world.chance.randint(10, 99_999)}", {"role": "worker"})]
    )


async def a_node_goes(world: World) -> None:
    nodes = world.cluster.server.store.all(NODE)
    if len(nodes) > 1:
        _template_or_nodes_changed(world)
        world.cluster.remove_node(world.chance.choice(nodes)["metadata"]["name"])
        await asyncio.sleep(world.chance.uniform(0, 20))
        world.push(tag=world.wanted.tag + 1)  # while its pods are still there
        pushed, image = world.wanted, world.expected_image()
        await asyncio.sleep(80)
        live = world.live()
        undisturbed = (
            world.wanted is pushed
            and not pushed.selector
            and world.story[-1].endswith("a node goes")
            and not world.disturbed
        )
        if undisturbed and live is not None and image_of(live) != image:
            world.fail("a commit waits because of the pods of a node that is gone")


async def a_node_is_silent_for_a_while(world: World) -> None:
    name = await _some_node(world)
    _template_or_nodes_changed(world)
    world.cluster.kill_node(name)
    await asyncio.sleep(world.chance.uniform(20, 200))
    _template_or_nodes_changed(world)
    with contextlib.suppress(errors.NotFound, KeyError):
        world.cluster.revive_node(name)


async def taints_and_labels_of_a_node_change_each_second(world: World) -> None:
    """As cluster-autoscaler's taint, which carries a time."""
    name = await _some_node(world)
    for number in range(world.chance.randint(60, 200)):
        _template_or_nodes_changed(world)
        taints = [
            {
                "key": "DeletionCandidateOfClusterAutoscaler",
                "value": str(number),
                "effect": "PreferNoSchedule",
            }
        ]
        with contextlib.suppress(errors.NotFound):
            await world.people.patch(
                NODE,
                "",
                name,
                {"metadata": {"labels": {"at": str(number)}}, "spec": {"taints": taints}},
            )
        await asyncio.sleep(1)
    with contextlib.suppress(errors.NotFound):
        await world.people.patch(NODE, "", name, {"spec": {"taints": None}})
    _template_or_nodes_changed(world)


# --- people


async def a_user_deletes_a_pod(world: World) -> None:
    own_pods = world.own_pods()
    if own_pods:
        await _gone(world, POD, SPACE, world.chance.choice(own_pods).name)


async def a_user_deletes_the_settings(world: World) -> None:
    await _gone(world, CONFIG_MAP, SPACE, "settings")


async def a_user_sets_an_image(world: World) -> None:
    _template_or_nodes_changed(world)
    await _set_image(world, "agent:by-hand")
    await asyncio.sleep(120)
    _template_or_nodes_changed(world)


async def a_user_deletes_the_daemonset_without_its_pods(world: World) -> None:
    _template_or_nodes_changed(world)
    with contextlib.suppress(errors.NotFound):
        await world.people.delete(DAEMONSET, SPACE, NAME, propagation=Propagation.ORPHAN)


async def a_user_restarts_and_deletes_the_newest_revision(world: World) -> None:
    _template_or_nodes_changed(world)
    stamp = {"kubectl.kubernetes.io/restartedAt": str(world.now)}
    with contextlib.suppress(errors.NotFound):
        await world.people.patch(
            DAEMONSET, SPACE, NAME, {"spec": {"template": {"metadata": {"annotations": stamp}}}}
        )
    await asyncio.sleep(60)
    if revision := _newest_revision(world):
        await _gone(world, CONTROLLER_REVISION, SPACE, revision["metadata"]["name"])
        _template_or_nodes_changed(world)
        before, changed_at = world.live(), world.changed_at
        await asyncio.sleep(60)
        unchanged = world.live() == before and world.changed_at == changed_at
        if not world.disturbed and unchanged and before is not None:
            world.check_newest_revision("after the newest revision was deleted", before)
    _template_or_nodes_changed(world)


async def a_revision_loses_the_label_of_the_selector(world: World) -> None:
    _template_or_nodes_changed(world)
    if revision := _newest_revision(world):
        await _labelled(world, revision, {"app": None})
        await asyncio.sleep(150)
        _template_or_nodes_changed(world)
        await _labelled(world, revision, {"app": "agent"})


async def a_finalizer_holds_old_revisions(world: World) -> None:
    held: list[Body] = []
    for _ in range(4):
        if revision := _newest_revision(world):
            held.append(revision)
            await _finalizers(world, revision, ["example.com/kept"])
        world.push(tag=world.wanted.tag + 1)
        await asyncio.sleep(60)
    await asyncio.sleep(120)
    for revision in held:
        await _finalizers(world, revision, None)


# --- strangers


async def a_replicator_copies_the_settings_with_their_labels(world: World) -> None:
    """It makes its copy again when it is deleted."""
    for _ in range(100):
        source = world.cluster.server.store.get(CONFIG_MAP, SPACE, "settings")
        if source is not None:
            kept = {
                key: value
                for key, value in source["metadata"].items()
                if key in ("labels", "annotations")
            }
            copy = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {**kept, "name": "settings", "namespace": "default"},
            }
            with contextlib.suppress(errors.AlreadyExists):
                await world.people.create(CONFIG_MAP, copy)
        await asyncio.sleep(2)


async def an_operator_sets_its_image_again_and_again(world: World) -> None:
    # what a controller owns would be a conflict for the next commit, for good
    operator = world.cluster.client("kubectl-set")
    for _ in range(world.chance.randint(100, 300)):
        live = world.live()
        if live is not None and image_of(live) != "agent:operator":
            _template_or_nodes_changed(world)
            with contextlib.suppress(errors.NotFound):
                patch = {
                    "spec": {
                        "template": {
                            "spec": {"containers": [{"name": "agent", "image": "agent:operator"}]}
                        }
                    }
                }
                await operator.patch(DAEMONSET, SPACE, NAME, patch)
        await asyncio.sleep(1)
    _template_or_nodes_changed(world)


async def a_policy_denies_the_adoption_of_pods(world: World) -> None:
    """Pods with the labels of the selector, and a webhook that refuses each change of them until it
    is taken away.
    """
    code = world.chance.choice(DENIALS)
    world.story[-1] += f" ({code})"

    def denied(request: SimulatedRequest) -> RequestFault | None:
        protected = (
            request.resource == POD
            and request.verb == "patch"
            and request.name.startswith("protected-")
        )
        return faults.failure(code) if protected else None

    for node in world.cluster.server.store.all(NODE):
        await world.people.create(
            POD, _pod(f"protected-{node['metadata']['name']}", node["metadata"]["name"])
        )
    with world.fault(denied):
        await asyncio.sleep(200)


async def pods_of_another_controller_have_our_labels(world: World) -> None:
    node = await _some_node(world)
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": "another",
        "controller": True,
    }
    body = _pod(f"web-{world.chance.randint(0, 9999)}", node)
    # The simulated garbage collector would take a pod whose owner does not exist.
    made = await world.people.create(
        CONFIG_MAP, {"metadata": {"name": body["metadata"]["name"], "namespace": SPACE}}
    )
    owner |= {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": made["metadata"]["name"],
        "uid": made["metadata"]["uid"],
    }
    await world.people.create(
        POD, {**body, "metadata": {**body["metadata"], "ownerReferences": [owner]}}
    )


async def an_orphan_goes_before_it_is_adopted(world: World) -> None:
    """The patch that adopts it gets 404."""
    _template_or_nodes_changed(world)
    missing = "vanishing"

    def gone(request: SimulatedRequest) -> RequestFault | None:
        return faults.failure(404) if request.verb == "patch" and request.name == missing else None

    with world.fault(gone):
        await world.people.create(POD, _pod(missing, await _some_node(world)))
        await asyncio.sleep(2)
        if len(world.windows) == 1:
            world.kept = {pod.uid for pod in world.own_pods()}
        await asyncio.sleep(60)
        world.kept = set()
        await _gone(world, POD, SPACE, missing)
    await asyncio.sleep(10)


# --- the API server


async def an_error_lasts_for_a_while(world: World) -> None:
    code = world.chance.choice((*DENIALS, 0))
    verbs = world.chance.choice(
        (
            ("create",),
            ("delete",),
            ("patch", "apply"),
            ("list",),
            ("list", "watch"),
            ("create", "patch", "delete"),
        )
    )
    kinds = world.chance.choice(
        ((POD,), (CONTROLLER_REVISION,), (DAEMONSET,), (CONFIG_MAP,), (NAMESPACE,), ())
    )
    world.story[-1] += (
        f" ({code or 'silence'} to {', '.join(verbs)} of "
        f"{', '.join(kind.plural for kind in kinds) or 'all'})"
    )
    answer: RequestFault = (
        faults.failure(code) if code else Silence(30.0, done=world.chance.random() < 0.5)
    )

    def fails(request: SimulatedRequest) -> RequestFault | None:
        return (
            answer if request.verb in verbs and (not kinds or request.resource in kinds) else None
        )

    with world.fault(fails):
        await asyncio.sleep(world.chance.uniform(20, 400))
    _template_or_nodes_changed(world)


async def watches_fail_while_lists_work(world: World) -> None:
    """What changed meanwhile has to be seen nevertheless, by lists."""
    code = world.chance.choice((403, 500, 503, 0))
    answer: RequestFault = (
        faults.failure(code) if code else errors.ClusterUnreachable("no answer in time")
    )
    with world.fault(lambda request: answer if request.verb == "watch" else None):
        for client in world.clients:
            client.cut_watches()
        await asyncio.sleep(200)
        own_pods = world.own_pods()
        if own_pods:
            await _gone(world, POD, SPACE, world.chance.choice(own_pods).name)
        _template_or_nodes_changed(world)
        await _set_image(world, "agent:unseen")
        await asyncio.sleep(760)
        if len(world.windows) == 1 and world.is_calm:
            world.check_agents("after 12 minutes without watches", rolled_out=False)
    _template_or_nodes_changed(world)


async def daemonsets_can_not_be_read(world: World) -> None:
    def fails(request: SimulatedRequest) -> RequestFault | None:
        blind = request.resource == DAEMONSET and request.verb in ("list", "watch")
        return faults.failure(403) if blind else None

    with world.fault(fails):
        for client in world.clients:
            client.cut_watches()
        world.blind_since = world.blind_since or world.now
        await asyncio.sleep(world.chance.uniform(600, 1200))
        world.blind_since = None
    _template_or_nodes_changed(world)


async def watches_are_late(world: World) -> None:
    late, world.is_late = world.chance.uniform(1, 30), True
    for client in world.clients:
        client.lag = lambda _resource: late
    world.push(tag=world.wanted.tag + 1)
    await asyncio.sleep(200)
    for client in world.clients:
        client.lag = faults.prompt
        client.cut_watches()
    world.is_late = False
    _template_or_nodes_changed(world)


async def watches_are_cut_and_history_is_gone(world: World) -> None:
    world.cluster.cut_all_watches()
    world.cluster.compact()


async def a_watch_dies_of_an_internal_error(world: World) -> None:
    """Once each watch of ConfigMaps; then a manual change has to be seen."""
    failed = set[str]()

    def fails(request: SimulatedRequest) -> RequestFault | None:
        is_watch = request.verb == "watch" and request.resource == CONFIG_MAP
        if is_watch and request.namespace not in failed:
            failed.add(request.namespace)
            raise RuntimeError("can't start new thread")
        return None

    with world.fault(fails):
        for client in world.clients[1:]:
            client.cut_watches()
        await asyncio.sleep(90)
    # Without it there is nothing to change: its commit may be younger than the last look at Git.
    existed = world.cluster.server.store.get(CONFIG_MAP, SPACE, "settings") is not None
    await _gone(world, CONFIG_MAP, SPACE, "settings")
    await asyncio.sleep(90)
    body = world.cluster.server.store.get(CONFIG_MAP, SPACE, "settings")
    undisturbed = (
        existed
        and not world.windows
        and world.wanted.settings
        and not world.git_away
        and world.live() is not None
    )
    if undisturbed and body is None:
        world.fail("after an internal error in a watch a change is not seen")


async def etcd_is_restored_from_a_backup(world: World) -> None:
    """While its API servers are down, so that each watch begins again, with what it saw last."""
    backup = world.cluster.server.store.backup()
    await world.people.create(CONFIG_MAP, {"metadata": {"namespace": "default", "name": "others"}})
    # a cluster writes much between a backup and its use: versions don't catch up within seconds
    for number in range(200):
        await world.people.patch(CONFIG_MAP, "default", "others", {"data": {"number": str(number)}})
    await asyncio.sleep(world.chance.uniform(5, 120))
    _template_or_nodes_changed(world)
    for client in world.clients:
        client.lag = faults.prompt
    world.cluster.restore(backup)
    world.restored_at = world.now
    for node in world.cluster.server.store.all(NODE):
        world.cluster.revive_node(node["metadata"]["name"])  # its next heartbeat
    with world.fault(
        lambda request: faults.failure(503) if request.verb not in faults.READS else None
    ):
        await asyncio.sleep(5)  # API servers are ready for reads first


# --- the service


async def the_service_is_killed_and_starts_again(world: World) -> None:
    world.restarted = True
    await world.kill()
    await asyncio.sleep(world.chance.uniform(0, 60))
    _template_or_nodes_changed(world)
    world.start()


def _pod(name: str, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "labels": {"app": "agent"}},
        "spec": {"nodeName": node, "containers": [{"name": "agent", "image": "agent:of-others"}]},
    }


async def _some_node(world: World) -> str:
    return str(world.chance.choice(world.cluster.server.store.all(NODE))["metadata"]["name"])


async def _gone(world: World, resource: Resource, namespace: str, name: str) -> None:
    with contextlib.suppress(errors.NotFound):
        await world.people.delete(resource, namespace, name)


async def _set_image(world: World, image: str) -> None:
    containers = [{"name": "agent", "image": image}]
    with contextlib.suppress(errors.NotFound):
        await world.people.patch(
            DAEMONSET, SPACE, NAME, {"spec": {"template": {"spec": {"containers": containers}}}}
        )


def _newest_revision(world: World) -> Body | None:
    return max(
        world.cluster.server.store.all(CONTROLLER_REVISION),
        key=lambda body: int(body["revision"]),
        default=None,
    )


async def _labelled(world: World, revision: Body, labels: dict[str, Any]) -> None:
    with contextlib.suppress(errors.NotFound):
        await world.people.patch(
            CONTROLLER_REVISION,
            SPACE,
            revision["metadata"]["name"],
            {"metadata": {"labels": labels}},
        )


async def _finalizers(world: World, revision: Body, finalizers: list[str] | None) -> None:
    with contextlib.suppress(errors.NotFound):
        await world.people.patch(
            CONTROLLER_REVISION,
            SPACE,
            revision["metadata"]["name"],
            {"metadata": {"finalizers": finalizers}},
        )


EVENTS: dict[str, Disturbance] = {
    name.replace("_", " "): event
    for name, event in list(globals().items())
    if asyncio.iscoroutinefunction(event) and not name.startswith("_")
}
