"""What people do with kubectl in and outside of a staged rollout, beside Kubernetes' own DaemonSet
controller: no unproved template passes its canary, and every touched node returns.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

from gitops_ds.rollouts.state import keys
from tests import controlplane
from tests.gitservers import Upstream
from tests.service import staged
from tests.service.staged import CANARIES, PodWatch, Soaks

pytestmark = staged.MARKS
NODES, FEW = 12, 4
SOAKS, LONG = Soaks(canary=5), Soaks(canary=86_400)


class Fleet:
    """The control plane with its service, by a person's hands."""

    def __init__(
        self, plane: controlplane.ControlPlane, upstream: Upstream, watch: PodWatch, log: Path
    ) -> None:
        self.plane, self.upstream, self.watch, self.log = plane, upstream, watch, log

    def commit(self, tag: str, soaks: Soaks = SOAKS) -> None:
        self.watch.expect("")
        self.upstream.commit(staged.files(tag, staged.policy(soaks)))

    async def kubectl(self, *words: str) -> str:
        return await asyncio.to_thread(self.plane.kubectl, *words)

    async def edit(self, tag: str) -> None:
        await self.kubectl("set", "image", "ds/agent", f"*={staged.image(tag)}")

    async def all_on(self, tag: str) -> None:
        await self.watch.until(lambda: len(self.watch.on(tag)) == NODES, self.log)
        await staged.until(lambda: self._is_at_rest(tag), self.log.read_text)

    def _is_at_rest(self, tag: str) -> bool:
        return staged.tag_of(self.plane) == tag and keys.TARGET not in _annotations(self.plane)

    async def canary_on(self, tag: str) -> set[str]:
        """The nodes of the canary, after it is updated."""
        await self.watch.until(lambda: len(self.watch.on(tag)) == CANARIES, self.log)
        return self.watch.on(tag)

    async def only_canaries(self, tag: str, seconds: float) -> None:
        """For that time no other node gets the template."""
        for _ in range(int(seconds * 5)):
            await asyncio.sleep(0.2)
            assert len(self.watch.uids(tag)) <= CANARIES


def test_people_and_unrelated_faults_cannot_by_pass_a_canary_or_delay_a_return(
    tmp_path: Path,
) -> None:
    staged.play(_scenes, tmp_path, NODES, SOAKS)


async def _scenes(
    plane: controlplane.ControlPlane, upstream: Upstream, watch: PodWatch, log: Path
) -> None:
    fleet = Fleet(plane, upstream, watch, log)
    await _an_edit_at_rest_restarts_nothing_and_proves_nothing(fleet)
    await _restarts_of_a_reboot_do_not_halt(fleet)
    await _a_return_does_not_wait_for_others(fleet)
    await _a_deleted_daemonset_returns_with_the_proven_template(fleet)
    await _a_deleted_daemonset_stays_halted(fleet)


async def _an_edit_at_rest_restarts_nothing_and_proves_nothing(fleet: Fleet) -> None:
    before = set(fleet.watch.created)
    await fleet.edit("2")
    await fleet.watch.quiet(5)
    await staged.until(lambda: staged.tag_of(fleet.plane) == "1", fleet.log.read_text)
    assert set(fleet.watch.created) == before
    fleet.commit("2")
    await fleet.canary_on("2")
    await fleet.only_canaries("2", SOAKS.canary - 2)
    await fleet.all_on("2")


async def _restarts_of_a_reboot_do_not_halt(fleet: Fleet) -> None:
    for node in sorted(fleet.watch.on("2")):
        await _booted(fleet, node, "first")
    fleet.commit("4", LONG)
    canary = sorted(await fleet.canary_on("4"))
    for node in canary[:2]:
        await _booted(fleet, node, "second")
        await _restarted(fleet, node)
    await asyncio.sleep(3)
    assert "halted" not in fleet.log.read_text()
    fleet.commit("4")
    await fleet.watch.until(lambda: len(fleet.watch.on("4")) > CANARIES + 2, fleet.log)
    for node in canary[1:]:  # proved before: their restarts are not judged by the rollout
        await _restarted(fleet, node)
    await fleet.all_on("4")
    assert "halted" not in fleet.log.read_text()


async def _booted(fleet: Fleet, node: str, boot: str) -> None:
    patch = json.dumps({"status": {"nodeInfo": {"bootID": boot}}})
    await fleet.kubectl("patch", "node", node, "--subresource=status", "-p", patch)


async def _restarted(fleet: Fleet, node: str) -> None:
    """The status of the pod of a node after a restart of its container."""
    pod = next(one for tag, one in fleet.watch.pods.values() if (tag, one.node) == ("4", node))
    ended = {"exitCode": 255, "reason": "Unknown"}
    state = {"name": "agent", "restartCount": 1, "lastState": {"terminated": ended}}
    patch = json.dumps({"status": {"containerStatuses": [state]}})
    await fleet.kubectl("patch", "pod", pod.name, "--subresource=status", "-p", patch)


async def _a_return_does_not_wait_for_others(fleet: Fleet) -> None:
    fleet.commit("5", LONG)
    touched = await fleet.canary_on("5")
    others = sorted(fleet.watch.on("4"))[:6]
    await fleet.kubectl("cordon", *others)
    fleet.commit("4", LONG)
    await fleet.watch.until(lambda: not fleet.watch.uids("5"), fleet.log)
    await fleet.all_on("4")
    assert touched <= fleet.watch.on("4")
    await fleet.kubectl("uncordon", *others)
    await fleet.watch.quiet(3)


async def _a_deleted_daemonset_returns_with_the_proven_template(fleet: Fleet) -> None:
    fleet.commit("7", LONG)
    await fleet.canary_on("7")
    for cascade in ("background", "orphan"):
        await fleet.kubectl("delete", "ds", "agent", f"--cascade={cascade}")
        await fleet.only_canaries("7", 5)
        await fleet.canary_on("7")
        await fleet.watch.until(lambda: len(fleet.watch.pods) == NODES, fleet.log)
    fleet.commit("7")
    await fleet.all_on("7")


async def _a_deleted_daemonset_stays_halted(fleet: Fleet) -> None:
    fleet.commit("broken")
    await staged.until(lambda: "halted" in fleet.log.read_text(), fleet.log.read_text)
    annotations = partial(_annotations, fleet.plane)
    await staged.until(lambda: keys.HALTED in annotations(), fleet.log.read_text)
    before = fleet.watch.uids("7")
    await fleet.kubectl("delete", "ds", "agent")
    await fleet.watch.until(lambda: not before & set(fleet.watch.pods), fleet.log)
    await fleet.watch.until(lambda: len(fleet.watch.on("7")) == NODES, fleet.log)
    await fleet.watch.quiet(5)
    assert not fleet.watch.uids("broken")
    fleet.commit("7")
    await fleet.all_on("7")


def _annotations(plane: controlplane.ControlPlane) -> dict[str, str]:
    return dict(staged.agent(plane)["metadata"]["annotations"])


def test_a_policy_that_is_removed_while_a_pod_waits_leaves_no_node_without_an_agent(
    tmp_path: Path,
) -> None:
    staged.play(_removed_policy, tmp_path, FEW, LONG, pod_delete_milliseconds=8000)


async def _removed_policy(
    plane: controlplane.ControlPlane, upstream: Upstream, watch: PodWatch, log: Path
) -> None:
    upstream.commit(staged.files("2", staged.policy(LONG)))
    await watch.until(lambda: any(not pod.bound for _, pod in watch.pods.values()), log)
    upstream.commit({"agents/agent/rollout.yaml": None})
    await watch.until(lambda: len(watch.on("2")) == FEW, log)
    await watch.until(lambda: all(pod.bound for _, pod in watch.pods.values()), log)
