"""Staged rollouts with the installed service beside Kubernetes' own DaemonSet controller, scheduler
and garbage collector.
"""

from __future__ import annotations

import asyncio
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

from gitops_ds.core import names
from gitops_ds.rollouts.state import keys
from tests import controlplane
from tests.gitservers import Upstream
from tests.service import staged
from tests.service.staged import CANARIES, Soaks
from tests.service.test_service import running
from tests.service.test_uninstall import program

pytestmark = staged.MARKS
NODES, ADDED, KILLED = 90, 15, 15
LONG, SOAKS = Soaks(canary=86_400), Soaks(canary=5)
QUICK = Soaks(canary=2)
SOME, LIVES, SEED = 60, 15, 7
FEW = 9


def test_a_commit_reaches_the_nodes_stage_by_stage_and_a_bad_one_its_canaries_only(
    tmp_path: Path,
) -> None:
    staged.play(_scene, tmp_path, NODES, SOAKS)


async def _scene(
    plane: controlplane.ControlPlane, upstream: Upstream, watch: staged.PodWatch, log: Path
) -> None:
    await _a_rollout_while_the_fleet_changes(plane, upstream, watch, log)
    await _a_bad_commit(plane, upstream, watch, log)


async def _a_rollout_while_the_fleet_changes(
    plane: controlplane.ControlPlane, upstream: Upstream, watch: staged.PodWatch, log: Path
) -> None:
    total = NODES + ADDED
    watch.expect("2")
    upstream.commit(staged.files("2", staged.policy(LONG)))
    await watch.until(lambda: len(watch.on("2")) == CANARIES, log)
    await asyncio.to_thread(plane.add_nodes, list(staged.nodes(range(NODES, total))))
    killed = sorted(watch.uids("1"))[:KILLED]
    pods = [watch.pods[uid][1].name for uid in killed]
    await asyncio.to_thread(plane.kubectl, "delete", "pod", *pods, "--wait=false")
    await watch.until(lambda: len(watch.on("1")) == total - CANARIES, log)
    assert not watch.uids("1") & set(killed)
    assert len(watch.on("2")) == CANARIES
    assert staged.tag_of(plane) == "1"
    # a policy takes effect on the rollout that runs
    upstream.commit(staged.files("2", staged.policy(SOAKS)))
    await watch.until(lambda: len(watch.on("2")) == total, log)
    await staged.until(lambda: _is_complete(plane, "2", total), log.read_text)
    assert not watch.wrong, watch.wrong[:5]
    await watch.quiet(5)
    history = plane.kubectl("rollout", "history", "ds/agent").split("\n")
    assert [line.split()[0] for line in history if line[:1].isdigit()] == ["1", "2"]
    assert len(staged.items(plane, "controllerrevisions")) == 2
    _differs_from_git_as_promised(plane, "2")


async def _a_bad_commit(
    plane: controlplane.ControlPlane, upstream: Upstream, watch: staged.PodWatch, log: Path
) -> None:
    total = NODES + ADDED
    before = watch.uids("2")
    watch.expect("broken")
    upstream.commit(staged.files("broken", staged.policy(SOAKS)))
    await watch.until(lambda: bool(watch.uids("broken")), log)
    await staged.until(lambda: "halted" in log.read_text(), log.read_text)
    touched = len(before - watch.uids("2"))
    assert 0 < touched <= CANARIES
    await watch.quiet(SOAKS.canary)
    revisions = {one["metadata"]["uid"] for one in _owned(plane)}
    watch.expect("")
    upstream.commit(staged.files("2", staged.policy(SOAKS)))
    await watch.until(lambda: len(watch.on("2")) == total, log)
    assert len(before - watch.uids("2")) == touched
    await staged.until(lambda: _is_complete(plane, "2", total), log.read_text)
    await watch.quiet(5)
    assert {
        item["metadata"]["uid"] for item in staged.items(plane, "controllerrevisions")
    } == revisions
    assert len(before - watch.uids("2")) == touched
    _differs_from_git_as_promised(plane, "2")


def test_a_service_that_is_killed_in_mid_rollout_loses_nothing(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path / "fleet")
    upstream.commit(staged.files("1", staged.policy(QUICK)))
    with staged.plane_with(tmp_path, SOME) as plane:
        asyncio.run(_lives(plane, upstream, tmp_path))


async def _lives(plane: controlplane.ControlPlane, upstream: Upstream, directory: Path) -> None:
    chance, options = random.Random(SEED), staged.words(upstream)
    async with staged.watching(plane, QUICK) as watch:
        with running(directory, plane, *options) as (_, log):
            await watch.until(lambda: len(watch.on("1")) == SOME, log)
        watch.expect("2")
        upstream.commit(staged.files("2", staged.policy(QUICK)))
        with running(directory, plane, *options) as (_, log):
            await watch.until(lambda: len(watch.uids("2")) == CANARIES, log)
        await _without_the_service(plane, watch)
        for life in range(LIVES):
            # Each is a pod with a cache of its own: a commit whose preparation is killed too often
            # is not tried again.
            own = directory / str(life)
            own.mkdir()
            enough = min(SOME, len(watch.uids("2")) + chance.randrange(1, 5))
            with running(own, plane, *options) as (process, log):  # ends with kill -9
                await watch.until(partial(_updated, watch, enough), log)
                assert process.poll() is None, log.read_text()
            text = log.read_text()
            assert "Traceback" not in text, text
        own = directory / "last"
        own.mkdir()
        with running(own, plane, *options) as (_, log):
            await watch.until(lambda: len(watch.on("2")) == SOME, log)
            await staged.until(lambda: _is_complete(plane, "2", SOME), log.read_text)
            await watch.quiet(3)
        assert not watch.wrong, watch.wrong[:5]
        assert len(watch.pods) == SOME


def _updated(watch: staged.PodWatch, number: int) -> bool:
    return len(watch.uids("2")) >= number


async def _without_the_service(plane: controlplane.ControlPlane, watch: staged.PodWatch) -> None:
    """Each deleted pod is followed by a proven one; all others keep running."""
    pinned, proven = (watch.pods[sorted(watch.uids(tag))[0]][1] for tag in ("2", "1"))
    for pod in (pinned, proven):
        await asyncio.to_thread(plane.kubectl, "delete", "pod", pod.name, "--wait=false")
    before = watch.uids("1") | watch.uids("2")
    await watch.until(lambda: {pinned.node, proven.node} <= watch.on("1") and _all_there(watch))
    after = watch.uids("1") | watch.uids("2")
    assert len(before - after) <= 2
    assert len(watch.uids("2")) == CANARIES - 1


def _all_there(watch: staged.PodWatch) -> bool:
    """Whether every node has a pod that is ready."""
    return len(watch.on("1") | watch.on("2")) == SOME


def test_uninstall_in_mid_rollout_brings_the_proven_pods_back_and_at_rest_restarts_none(
    tmp_path: Path,
) -> None:
    upstream = Upstream(tmp_path / "fleet")
    upstream.commit(staged.files("1", staged.policy(QUICK)))
    with staged.plane_with(tmp_path, FEW, pod_delete_milliseconds=2000) as plane:
        asyncio.run(_uninstalled(plane, upstream, tmp_path))


async def _uninstalled(
    plane: controlplane.ControlPlane, upstream: Upstream, directory: Path
) -> None:
    options = staged.words(upstream)
    async with staged.watching(plane, QUICK) as watch:
        with running(directory, plane, *options) as (_, log):
            await watch.until(lambda: len(watch.on("1")) == FEW, log)
            watch.expect("2")
            upstream.commit(staged.files("2", staged.policy(QUICK)))
            await watch.until(lambda: bool(watch.on("2")) and _waits(watch), log)
        touched = {pod.node for tag, pod in watch.pods.values() if tag == "2"}
        untouched = {uid for uid in watch.uids("1") if watch.pods[uid][1].node not in touched}
        await asyncio.to_thread(_uninstall, plane)
        await watch.until(lambda: len(watch.on("1")) == FEW and not watch.uids("2"))
        await watch.quiet(3)
        assert untouched <= watch.uids("1")
        _nothing_is_left(plane)
        items = staged.items(plane, "controllerrevisions")
        assert len(items) == 1, json.dumps(items)

        with running(directory, plane, *options) as (_, log):
            await watch.until(lambda: len(watch.on("2")) == FEW, log)
            await staged.until(lambda: _is_complete(plane, "2", FEW), log.read_text)
        await asyncio.to_thread(_uninstall, plane)
        await watch.quiet(5)
        assert len(watch.on("2")) == FEW
        _nothing_is_left(plane)


def _waits(watch: staged.PodWatch) -> bool:
    return any(pod.pinned and not pod.bound for _, pod in watch.pods.values())


def _uninstall(plane: controlplane.ControlPlane) -> None:
    done = program(plane, staged.STATES, "uninstall", "--yes")
    assert done.code == 0, done.err


def _nothing_is_left(plane: controlplane.ControlPlane) -> None:
    body = staged.agent(plane)
    assert body["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    found = [
        body,
        *staged.items(plane, "pods"),
        *staged.items(plane, "controllerrevisions"),
    ]
    assert names.DOMAIN not in json.dumps([one["metadata"] for one in found])


def _owned(plane: controlplane.ControlPlane) -> list[dict[str, Any]]:
    """The revisions that the DaemonSet owns; target revisions are not among them."""
    return [
        item
        for item in staged.items(plane, "controllerrevisions")
        if item["metadata"]["ownerReferences"][0].get("controller")
    ]


def _is_complete(plane: controlplane.ControlPlane, tag: str, total: int) -> bool:
    body = staged.agent(plane)
    annotations = body["metadata"]["annotations"]
    status = body.get("status") or {}
    return (
        staged.tag_of(plane) == tag
        and keys.TARGET not in annotations
        and status.get("observedGeneration") == body["metadata"]["generation"]
        and status.get("updatedNumberScheduled") == total
        and status.get("numberAvailable") == total
        and len(staged.items(plane, "controllerrevisions")) == len(_owned(plane))
    )


def _differs_from_git_as_promised(plane: controlplane.ControlPlane, tag: str) -> None:
    """Beside status, strategy and our metadata, the DaemonSet is what Git holds, with the API
    server's defaults.
    """
    live = staged.agent(plane)
    body = staged.manifest(tag)
    path = "/apis/apps/v1/namespaces/default/daemonsets?dryRun=All"
    renamed = {**body, "metadata": {**body["metadata"], "name": "as-in-git"}}
    created = plane.request("POST", path, renamed)
    assert live["spec"].pop("updateStrategy") == {"type": "OnDelete"}
    del created["spec"]["updateStrategy"]
    assert live["spec"] == created["spec"]
    ours = (names.DOMAIN, names.TEMPLATE_GENERATION, names.CHANGE_CAUSE)
    for group in ("annotations", "labels"):
        for name, value in (live["metadata"].get(group) or {}).items():
            expected = (created["metadata"].get(group) or {}).get(name)
            is_ours = name.startswith(ours) or name.startswith("app.kubernetes.io/managed-by")
            assert expected == value or is_ours, (name, value)
