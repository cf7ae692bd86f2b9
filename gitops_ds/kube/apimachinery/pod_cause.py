"""Why a pod fails, in Kubernetes' own words: from the states of all its containers, its conditions,
and its newest warning event.

The kubelet moves the state of a container that ended to `lastState` when it waits for a restart, so
only both together have the exit code.
https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/kubelet/kubelet_pods.go
(convertToAPIContainerStatuses),
https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gitops_ds.core import plain_text
from gitops_ds.core.daemonset import Pod, PodCause
from gitops_ds.core.objects import Body
from gitops_ds.kube.apimachinery import timestamps

# Seconds for which a container must run after a restart until it is well: twice as long as before
# the restart, within these bounds. The kubelet resets its back-off after 10 minutes, twice
# MaxContainerBackOff: pkg/kubelet/apis/config/v1beta1/defaults.go, client-go's flowcontrol.Backoff.
SETTLES_WITHIN = (60.0, 600.0)

_ON_ITS_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})
# Waiting reasons with less information than the end of the container.
_ENDED = frozenset({"CrashLoopBackOff", "RunContainerError"})
# Reasons of an end with less information than the waiting reason.
_GENERIC = frozenset({"", "Error", "Completed"})
# Reasons of events that repeat the status of the pod.
REPEATING = frozenset({"BackOff", "Failed", "FailedScheduling"})
# Reasons of warnings of pods that run nevertheless: pkg/kubelet/events/event.go,
# pkg/kubelet/network/dns/dns.go, pkg/kubelet/kubelet_pods.go.
HARMLESS = frozenset(
    {
        "AlreadyMountedVolume",
        "CgroupV1",
        "CheckLimitsForResolvConf",
        "DNSConfigForming",
        "InvalidEnvironmentVariableNames",
        "MissingClusterDNS",
        "PossibleMemoryBackedVolumesOnDisk",
        "ProbeWarning",
        "ResizeDeferred",
        "ResizeInfeasible",
        "VolumePermissionChangeInProgress",
    }
)


class StatusCause(msgspec.Struct, frozen=True):
    """The cause by the status alone. `trouble` is the reason for decisions: a waiting reason of a
    container, or the reason of the pod; `reason` and `message` are for people. All can be empty.
    """

    trouble: str = ""
    reason: str = ""
    message: str = ""


class _ContainerStatus(msgspec.Struct, frozen=True):
    """A container by its status. `prefix` is that of kubectl for init containers."""

    name: str
    prefix: str
    status: Body

    @property
    def waiting(self) -> Body:
        return (self.status.get("state") or {}).get("waiting") or {}

    @property
    def ended(self) -> Body:
        return (self.status.get("state") or {}).get("terminated") or {}

    @property
    def ended_before(self) -> Body:
        return (self.status.get("lastState") or {}).get("terminated") or {}


def shown(pod: Pod, reason: str, warnings: Mapping[str, PodCause]) -> PodCause:
    """The reason and the message of a pod that fails for `reason`; `warnings` are the newest
    warning events by the UID of the pod.

    The event gives the reason of a pod that only is not ready: its status has none.
    """
    warning = warnings.get(pod.uid)
    if warning is None or ((pod.reason or pod.message) and warning.reason in REPEATING):
        return PodCause(pod.reason or reason, pod.message)
    if reason == "NotReady" and not pod.reason:
        return PodCause(warning.reason, _line(warning.message, pod.message))
    return PodCause(
        pod.reason or reason, _line(pod.message, f"{warning.reason}: {warning.message}")
    )


def read(spec: Body, status: Body) -> StatusCause:
    """The cause by the status of a pod."""
    containers = _containers(spec, status)
    for container in containers:
        reason = str(container.waiting.get("reason") or "")
        if reason not in _ON_ITS_WAY:
            return _waiting(container, reason)
    ends = [
        (container, container.ended) for container in containers if container.ended.get("exitCode")
    ]
    if status.get("phase") == "Failed":
        reason = str(status.get("reason") or "Failed")
        ended = _end(*ends[0]).message if ends else ""
        return StatusCause(reason, reason, _line(str(status.get("message") or ended)))
    conditions = {
        str(condition.get("type")): condition for condition in status.get("conditions") or ()
    }
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False":
        reason = str(scheduled.get("reason") or "Unschedulable")
        return StatusCause(reason, reason, _line(str(scheduled.get("message") or "")))
    if ends:
        return _end(*ends[0])
    before = [
        (container, container.ended_before) for container in containers if container.ended_before
    ]
    if before:
        return _end(*max(before, key=lambda one: str(one[1].get("finishedAt") or "")))
    ready = conditions.get("Ready") or {}
    message = ready.get("message") if ready.get("status") == "False" else ""
    return StatusCause(message=sys.intern(_line(str(message or ""))))


def statuses(status: Body) -> Sequence[Body]:
    """The status of each container of a pod, in the order of their start."""
    return [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]


def last_ends(states: Sequence[Body]) -> Sequence[Body]:
    """How the containers that were restarted ended before."""
    return [end for state in states if (end := (state.get("lastState") or {}).get("terminated"))]


def crashed_at(ends: Sequence[Body]) -> float | None:
    """When a container last ended with an error, also of a pod that is ready again."""
    times = (_seconds(end, "finishedAt") for end in ends if end.get("exitCode"))
    return max((time for time in times if time), default=None)


def crash(ends: Sequence[Body]) -> str:
    """The reason of the first end with an error."""
    for end in ends:
        if end.get("exitCode") or end.get("reason") == "OOMKilled":
            return sys.intern(str(end.get("reason") or ""))
    return ""


def last_run(ends: Sequence[Body]) -> float | None:
    """The seconds of the shortest of these runs; None if none has both times."""
    runs = ((_seconds(end, "startedAt"), _seconds(end, "finishedAt")) for end in ends)
    return min((ended - began for began, ended in runs if began and ended), default=None)


def last_end(ends: Sequence[Body]) -> float:
    """When the last of these runs ended, in seconds since 1970; 0 without any."""
    return max((_seconds(end, "finishedAt") for end in ends), default=0.0)


def launched_at(states: Sequence[Body]) -> float:
    """When the last of the running containers that never restarted began to run; 0 without any."""
    running = (
        (state.get("state") or {}).get("running") or {}
        for state in states
        if not state.get("restartCount")
    )
    return max((_seconds(container, "startedAt") for container in running), default=0.0)


def settles_at(states: Sequence[Body]) -> float:
    """When the running containers that were restarted have run for long enough; 0 without any.

    The exit code does not matter: a program that a failed liveness probe stops may end with 0.
    """
    least, most = SETTLES_WITHIN
    latest = 0.0
    for state in states:
        end = (state.get("lastState") or {}).get("terminated")
        running = (state.get("state") or {}).get("running")
        if not end or not running:
            continue
        # A container that did not start at all began in 1970.
        began, ended = _seconds(end, "startedAt"), _seconds(end, "finishedAt")
        ran = max(0.0, ended - began) if began else 0.0
        if ran < most:
            within = min(max(2 * ran, least), most)
            latest = max(latest, _seconds(running, "startedAt") + within)
    return latest


def _waiting(container: _ContainerStatus, reason: str) -> StatusCause:
    end, label = container.ended_before, _label(container)
    if reason in _ENDED and end:
        ended = _end(container, end)
        specific = str(end.get("reason") or "") not in _GENERIC
        shown = ended.reason if specific else container.prefix + reason
        return StatusCause(reason, shown, ended.message)
    message = container.waiting.get("message")
    return StatusCause(
        reason, container.prefix + reason, _line(f"{label}: {message}" if message else label)
    )


def _end(container: _ContainerStatus, end: Body) -> StatusCause:
    """`container agent: exit code 137, signal 9: MESSAGE`. The reason of an ordinary container is
    empty if it adds nothing to the exit code.
    """
    reason, message = str(end.get("reason") or ""), str(end.get("message") or "")
    text = f"{_label(container)}: exit code {end.get('exitCode') or 0}"
    if signal := end.get("signal"):
        text += f", signal {signal}"
    if message:
        text += f": {message}"
    is_shown = reason and (reason not in _GENERIC or (container.prefix and end.get("exitCode")))
    return StatusCause("", container.prefix + reason if is_shown else "", _line(text))


def _label(container: _ContainerStatus) -> str:
    return f"{'init container' if container.prefix else 'container'} {container.name}"


def _line(*texts: str) -> str:
    """The texts as one line of bounded length."""
    return plain_text.line("; ".join(" ".join(text.split()) for text in texts if text))


def _containers(spec: Body, status: Body) -> Sequence[_ContainerStatus]:
    """In the order of their start. A sidecar container runs beside the others, so it has no prefix.

    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
    """
    sidecars = {
        container.get("name")
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    first = len(status.get("initContainerStatuses") or ())
    return [
        _ContainerStatus(
            str(one.get("name") or ""),
            "Init:" if at < first and one.get("name") not in sidecars else "",
            one,
        )
        for at, one in enumerate(statuses(status))
    ]


def _seconds(state: Body, name: str) -> float:
    return timestamps.seconds(str(state.get(name) or "")) or 0.0


READINESS = "Readiness probe"  # pkg/kubelet/prober/prober.go


def newest_warning(events: Iterable[Body]) -> PodCause | None:
    """The newest warning that may explain a failure. Those that repeat the status of the pod, and
    failures of its readiness probe, count only without others: a container that its liveness probe
    stopped is not ready afterwards.
    """
    warnings = [
        event
        for event in events
        if event.get("type") == "Warning"
        and event.get("message")
        and event.get("reason") not in HARMLESS
    ]
    last = max(
        warnings,
        key=lambda one: (
            one.get("reason") not in REPEATING,
            not str(one["message"]).startswith(READINESS),
            last_seen(one),
        ),
        default=None,
    )
    if last is None:
        return None
    message = plain_text.line(" ".join(str(last["message"]).split()))
    return PodCause(str(last.get("reason") or "Warning"), message)


def last_seen(event: Body) -> float:
    """When an event last occurred, in seconds since 1970; 0 if unknown."""
    moment = (
        (event.get("series") or {}).get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or ""
    )
    return timestamps.seconds(str(moment)) or 0.0
