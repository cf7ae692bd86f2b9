"""A pod of a rollout's target on its node: from when it is judged, and what counts against its
template.

Only what happens between the touch and the proof does. A reboot of the node, or a change of its
readiness, restarts that time.
"""

from __future__ import annotations

import math

import msgspec

from gitops_ds.model.daemonset import Pod
from gitops_ds.model.live import Node
from gitops_ds.model.rollouts.rollout_policy import Gate, RolloutPolicy, Stage

# Waiting reasons of a container that the template can cause. kubelet:
# pkg/kubelet/container/sync_result.go, pkg/kubelet/images.
TEMPLATE_REASONS = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "Failed",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)


class TouchedPod(msgspec.Struct, frozen=True):
    """A pod of the target with the times from which it is judged, in seconds since 1970: `touched`
    when it was created or released, `began` also after the last change of its node, `started` also
    after its last change of readiness. `soak` is that of its stage, in seconds.
    """

    pod: Pod
    soak: float
    touched: float
    began: float
    rebooted: bool

    @classmethod
    def of(cls, pod: Pod, node: Node | None, stage: Stage, min_ready: int) -> TouchedPod:
        """The pod on its node."""
        at = touched(pod)
        since, boot_id = (node.ready_since, node.boot_id) if node else (0.0, "")
        other_boot = bool(pod.boot_id and boot_id) and boot_id != pod.boot_id
        soak = max(stage.soak, min_ready)
        return cls(pod, soak, at, max(at, since), other_boot or since > at)

    @property
    def started(self) -> float:
        """When it began to start, or lost its readiness."""
        return max(self.began, self.pod.ready_since or 0.0)

    @property
    def soaked_at(self) -> float:
        """When it is ready for the soak. It was not ready before the touch: the clock of a node may
        be behind that of the API server.
        """
        return max(self.touched, self.pod.ready_since or 0.0) + self.soak

    def is_soaked(self, now: float) -> bool:
        """Whether it is ready for the soak."""
        return self.pod.ready and self.soaked_at <= now

    def is_closed(self, passed_at: float | None, within: float) -> bool:
        """Whether its node was proved before: its stage passed with it, or its containers ran for
        the soak after the time `within` which a pod becomes ready, before they ended. The status of
        a pod does not state when it was ready before, only when that last changed.
        """
        pod = self.pod
        if pod.gated:
            return False
        if passed_at is not None and pod.created < math.floor(passed_at):
            return True
        was_ready = pod.ready or (pod.ready_since or 0.0) >= self.touched + self.soak
        return was_ready and pod.last_run is not None and pod.last_run >= self.soak + within


def ready_within(stage: Stage, policy: RolloutPolicy) -> float:
    """The seconds that a new pod has until it is ready."""
    gate = policy.gate("pods") if "pods" in stage.gates else None
    return min(gate.ready_within if gate else policy.progress.per_node, policy.progress.per_node)


def failure(touched: TouchedPod, stage: Stage, policy: RolloutPolicy, now: float) -> str:
    """The reason in one word why a touched node fails; empty while it does not.

    Restarts count from the touch on, so none before or by a reboot of the node does; after it the
    pod has the time of a new one to start.
    """
    gate, pod = policy.gate("pods") if "pods" in stage.gates else None, touched.pod
    is_starting = now - touched.started < ready_within(stage, policy)
    if gate is not None and not (touched.rebooted and is_starting):
        if pod.trouble in TEMPLATE_REASONS and not _is_allowed(gate, pod.trouble):
            return "OOMKilled" if pod.crash == "OOMKilled" else pod.trouble
        if pod.restarts > gate.restarts and not touched.rebooted:
            return pod.crash if pod.crash == "OOMKilled" else "Restarted"
    if pod.ready or pod.gated or is_starting:
        return ""
    return pod.trouble or "NotReady"


def touched(pod: Pod) -> float:
    """When the pod was created or released, in seconds since 1970."""
    return max(pod.created, pod.released)


def started(pod: Pod) -> float:
    """When the pod began to start, or lost its readiness, in seconds since 1970."""
    return max(touched(pod), pod.ready_since or 0.0)


def broken_at(pod: Pod, within: float) -> float:
    """When a pod that is not ready counts as broken instead of starting, in seconds since 1970: at
    once for a reason that does not pass, else after the time `within` that a new pod has.
    """
    return 0.0 if pod.trouble in TEMPLATE_REASONS or pod.ended else started(pod) + within


def _is_allowed(gate: Gate, reason: str) -> bool:
    return gate.reasons != "none" and reason in gate.reasons
