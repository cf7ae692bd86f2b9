"""Runs the pods of every node by a `Behaviour`: image pulls, starts, readiness, failures, ends.

Containers do nothing: the name of the image decides whether it can be pulled, keeps running and
becomes ready. Probes, volumes and hooks are ignored.
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from __future__ import annotations

import asyncio
import fnmatch
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from gitops_ds.core.cluster import EventType
from gitops_ds.core.objects import POD, Body
from gitops_ds.core.rate_limits import Backoff
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.testing.simulator import conditions
from gitops_ds.testing.simulator.registry_strategy import DeleteOptions
from gitops_ds.testing.simulator.server import Server
from gitops_ds.testing.simulator.store import StoredChange

# between restarts of a container that ends repeatedly, and between pulls of an image
_BACKOFF = Backoff(10.0, 300.0)


class Trouble(StrEnum):
    """The fault of an image."""

    NEVER_PULLED = "never pulled"
    CRASHES = "crashes"
    NEVER_READY = "never ready"
    OUT_OF_MEMORY = "out of memory"
    FLAPS = "flaps"  # becomes ready and unready in turn, each time after `flap_after` seconds
    CRASHES_LATE = "crashes late"  # `late_after` seconds after it became ready, each time
    REGISTRY_DOWN = "registry down"


# The end of the kubelet's message about an image `{0}`, as with containerd.
_PULLS = {
    Trouble.NEVER_PULLED: 'failed to resolve reference "{0}": {0}: not found',
    Trouble.REGISTRY_DOWN: 'failed to do request: Head "https://{0}": dial tcp 192.0.2.1:443: '
    "connect: connection refused",
}
_CRASHING = (Trouble.CRASHES, Trouble.OUT_OF_MEMORY, Trouble.CRASHES_LATE)


class PodFault(msgspec.Struct, frozen=True):
    """Images and nodes by shell patterns, and their fault."""

    image: str
    trouble: Trouble
    nodes: str = "*"


class Behaviour(msgspec.Struct, frozen=True):
    """Delays in seconds: of the first pull of an image on a node, of readiness after a start, of
    the end after a delete, of a crash, of a crash after readiness.

    `jitter` increases each delay by up to that share, differently for each pod, but equally in each
    run.
    """

    pull: float = 2.0
    start: float = 1.0
    stop: float = 1.0
    crash_after: float = 2.0
    flap_after: float = 20.0
    late_after: float = 300.0
    jitter: float = 0.0
    faults: tuple[PodFault, ...] = ()

    def trouble(self, pod: Body) -> tuple[str, Trouble] | None:
        """The first container of the pod with a fault, and the fault."""
        for container in pod["spec"]["containers"]:
            for fault in self.faults:
                if fnmatch.fnmatchcase(
                    container.get("image", ""), fault.image
                ) and fnmatch.fnmatchcase(pod["spec"]["nodeName"], fault.nodes):
                    return container["name"], fault.trouble
        return None


@dataclass(slots=True)
class _Run:
    """One pod on its node: the timer of the next step, the number of crashes, and that of restarts
    with its node.
    """

    body: Body
    timer: asyncio.TimerHandle | None = None
    crashes: int = 0
    reboots: int = 0
    crashed: float = 0.0
    ending: bool = False

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


@dataclass(slots=True)
class Kubelets:
    """The kubelets of all nodes. It must receive every change of pods, in order; `dead` nodes do
    nothing.
    """

    server: Server
    behaviour: Behaviour
    dead: set[str] = field(default_factory=set)
    _runs: dict[str, _Run] = field(default_factory=dict)
    _pulled: set[tuple[str, str]] = field(default_factory=set)
    _addresses: int = 0

    def saw_pod(self, change: StoredChange) -> None:
        """Handles a new, changed or deleted pod."""
        metadata = change.body["metadata"]
        uid = metadata["uid"]
        run = self._runs.get(uid)
        # after a restore of etcd a pod may not be bound yet
        if change.type is EventType.DELETED or not change.body["spec"].get("nodeName"):
            if run:
                run.stop()
                del self._runs[uid]
            return
        if run is None:
            run = self._runs[uid] = _Run(change.body)
            self._take(run)
        before, run.body = run.body, change.body
        if "deletionTimestamp" in metadata and not run.ending:
            self._end(run)
        elif _images(before) != _images(change.body):
            self._take(run)

    def stop(self) -> None:
        """Cancels all timers."""
        for run in self._runs.values():
            run.stop()

    def die(self, node: str) -> None:
        """Stops the node without notice; the last status of its pods remains."""
        self.dead.add(node)
        for run in self._on(node):
            run.stop()

    def revive(self, node: str, *, rebooted: bool = False) -> None:
        """Restarts the node: terminating pods end, the others start again. After a reboot each
        container has another restart.
        """
        self.dead.discard(node)
        for run in self._on(node):
            run.ending = False
            run.reboots += rebooted and "containerStatuses" in (run.body.get("status") or {})
            if "deletionTimestamp" in run.body["metadata"]:
                self._end(run)
            else:
                self._take(run)

    def _on(self, node: str) -> Iterator[_Run]:
        return (run for run in list(self._runs.values()) if run.body["spec"]["nodeName"] == node)

    def _after(self, run: _Run, seconds: float, step: Callable[[_Run], None]) -> None:
        run.stop()
        if run.body["spec"]["nodeName"] in self.dead:
            return
        part = zlib.crc32(run.body["metadata"]["uid"].encode()) / 2**32
        delay = seconds * (1 + self.behaviour.jitter * part)
        run.timer = asyncio.get_running_loop().call_later(delay, step, run)

    def _take(self, run: _Run) -> None:
        node = run.body["spec"]["nodeName"]
        if node in self.dead or (run.body.get("status") or {}).get("phase") in (
            "Failed",
            "Succeeded",
        ):
            return
        self._say(run, "Pending", lambda name: _waiting("ContainerCreating"))
        images = {(node, image) for image in _images(run.body)}
        self._after(run, 0 if images <= self._pulled else self.behaviour.pull, self._start)

    def _start(self, run: _Run) -> None:
        trouble = (self.behaviour.trouble(run.body) or ("", None))[1]
        match trouble:
            case Trouble.NEVER_PULLED | Trouble.REGISTRY_DOWN:
                self._fail_to_pull(run, "ErrImagePull")
                self._after(run, _BACKOFF.first, self._back_off_pulling)
            case Trouble.CRASHES | Trouble.OUT_OF_MEMORY:
                self._say(run, "Running", lambda name: self._running())
                self._after(run, self.behaviour.crash_after, self._crash)
            case Trouble.FLAPS:
                self._flap(run, ready=False)
            case Trouble.NEVER_READY:
                self._say(run, "Running", lambda name: self._running())
            case Trouble.CRASHES_LATE | None:
                self._pulled.update(
                    (run.body["spec"]["nodeName"], image) for image in _images(run.body)
                )
                self._say(run, "Running", lambda name: self._running())
                self._after(run, self.behaviour.start, self._ready)

    def _back_off_pulling(self, run: _Run) -> None:
        self._fail_to_pull(run, "ImagePullBackOff")
        self._after(run, _BACKOFF.longest, self._start)

    def _fail_to_pull(self, run: _Run, reason: str) -> None:
        bad, trouble = self.behaviour.trouble(run.body) or ("", None)
        images = {
            container["name"]: container.get("image", "")
            for container in run.body["spec"]["containers"]
        }
        if trouble not in _PULLS:
            return
        image = images[bad]
        message = f'failed to pull image "{image}": {_PULLS[trouble].format(image)}'
        if reason == "ImagePullBackOff":
            message = f'Back-off pulling image "{image}": ErrImagePull: {message}'
        self._say(
            run,
            "Pending",
            lambda name: (
                _waiting(reason, message) if name == bad else _waiting("ContainerCreating")
            ),
        )

    def _crash(self, run: _Run) -> None:
        bad, _ = self.behaviour.trouble(run.body) or ("", None)
        run.crashes += 1
        wait = _BACKOFF.delay(run.crashes)
        run.crashed = self.server.now()
        message = f"back-off {wait:g}s restarting failed container={bad}"
        self._say(
            run,
            "Running",
            lambda name: _waiting("CrashLoopBackOff", message) if name == bad else self._running(),
        )
        self._after(run, wait, self._start)

    def _ready(self, run: _Run) -> None:
        self._say(run, "Running", lambda name: {**self._running(), "ready": True})
        if (self.behaviour.trouble(run.body) or ("", None))[1] is Trouble.CRASHES_LATE:
            self._after(run, self.behaviour.late_after, self._crash)

    def _flap(self, run: _Run, ready: bool) -> None:
        self._say(run, "Running", lambda name: {**self._running(), "ready": ready})
        self._after(run, self.behaviour.flap_after, lambda again: self._flap(again, not ready))

    def _running(self) -> dict[str, Any]:
        return {
            "started": True,
            "state": {"running": {"startedAt": timestamps.text(self.server.now())}},
        }

    def _end(self, run: _Run) -> None:
        run.ending = True
        grace = run.body["metadata"].get("deletionGracePeriodSeconds", 0)
        self._after(run, min(self.behaviour.stop, grace), self._ended)

    def _ended(self, run: _Run) -> None:
        metadata = run.body["metadata"]
        if self.server.store.get(POD, metadata["namespace"], metadata["name"]) is not None:
            self.server.delete(
                POD,
                metadata["namespace"],
                metadata["name"],
                DeleteOptions(uid=metadata["uid"], grace=0),
            )

    def _say(self, run: _Run, phase: str, of: Callable[[str], dict[str, Any]]) -> None:
        """Writes the pod's status: `of` returns each container's state by its name."""
        body, now = run.body, self.server.now()
        old = body.get("status") or {}
        containers = [
            self._container(container, of(container["name"]), run)
            for container in body["spec"]["containers"]
        ]
        ready = all(container["ready"] for container in containers)
        unready = ("ContainersNotReady", "containers with unready status")
        listed: Any = old.get("conditions") or ()
        for type, holds, why in (
            ("PodReadyToStartContainers", True, ("", "")),
            ("Initialized", True, ("", "")),
            ("Ready", ready, ("", "") if ready else unready),
            ("ContainersReady", ready, ("", "") if ready else unready),
            ("PodScheduled", True, ("", "")),
        ):
            listed = conditions.among(listed, type, str(holds), now, why)
        status = {
            **old,
            "phase": phase,
            "conditions": listed,
            "startTime": old.get("startTime") or timestamps.text(now),
            "containerStatuses": containers,
        }
        if phase == "Running" and "podIP" not in status:
            self._addresses += 1
            status["podIP"] = (
                f"10.{self._addresses >> 16 & 255}.{self._addresses >> 8 & 255}."
                f"{self._addresses & 255}"
            )
        run.body = self.server.put(POD, body, status=status) or body

    def _container(self, container: Body, state: dict[str, Any], run: _Run) -> dict[str, Any]:
        image = container.get("image", "")
        made = {
            "name": container["name"],
            "image": image,
            "imageID": "",
            "ready": False,
            "started": False,
            **state,
        }
        bad, trouble = self.behaviour.trouble(run.body) or ("", None)
        crashed = bad == container["name"] and trouble in _CRASHING
        restarts = max(run.crashes - ("waiting" in made["state"]), 0) if crashed else 0
        made["restartCount"] = restarts + run.reboots
        before = (run.body.get("status") or {}).get("containerStatuses") or ()
        for known in before:
            is_same = (
                known["name"] == made["name"] and known["restartCount"] == made["restartCount"]
            )
            if is_same and "running" in known["state"] and "running" in made["state"]:
                made["state"] = known["state"]
        if crashed and run.crashes:
            made["lastState"] = {
                "terminated": {
                    "exitCode": 137 if trouble is Trouble.OUT_OF_MEMORY else 1,
                    "reason": "OOMKilled" if trouble is Trouble.OUT_OF_MEMORY else "Error",
                    "finishedAt": timestamps.text(run.crashed),
                }
            }
        return made


def _waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, **({"message": message} if message else {})}}}


def _images(pod: Body) -> tuple[str, ...]:
    return tuple(container.get("image", "") for container in pod["spec"]["containers"])
