"""Pods that fail, as the kubelet 1.37 with containerd writes them, and the events about them."""

from __future__ import annotations

from typing import Any

from gitops_ds.kube.apimachinery import timestamps

ENDED = 1_767_268_830.0  # 2026-01-01T12:00:30Z

EXEC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc "
    "create failed: unable to start container process: error during container init: exec: "
    '"/no/such/program": stat /no/such/program: no such file or directory'
)
POD = "agent-x7k2p_logging(6c1b0a52-3d0e-4a57-9a55-0f4c7d3e1b11)"
UID = "6c1b0a52-3d0e-4a57-9a55-0f4c7d3e1b11"


def end(code: int, reason: str = "Error", ran: int = 5, **more: Any) -> dict[str, Any]:
    """How a container ended at 12:00:30 after `ran` seconds."""
    return {
        "terminated": {
            "containerID": "containerd://5f0c",
            "exitCode": code,
            "reason": reason,
            "startedAt": timestamps.text(ENDED - ran),
            "finishedAt": "2026-01-01T12:00:30Z",
            **more,
        }
    }


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    """The state of a waiting container."""
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def back_off(name: str = "agent", seconds: int = 20) -> dict[str, Any]:
    """The state of a container in back-off."""
    message = f"back-off {seconds}s restarting failed container={name} pod={POD}"
    return waiting("CrashLoopBackOff", message)


def running(at: str = "2026-01-01T12:00:31Z") -> dict[str, Any]:
    """The state of a running container."""
    return {"running": {"startedAt": at}}


def container(
    state: dict[str, Any],
    last: dict[str, Any] | None = None,
    name: str = "agent",
    *,
    ready: bool = False,
    restarts: int | None = None,
) -> dict[str, Any]:
    """The status of a container; by default it restarted twice if it ended before."""
    return {
        "name": name,
        "image": "registry.example.com/agent:2",
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": (2 if last else 0) if restarts is None else restarts,
        "state": state,
        "lastState": last or {},
    }


def pod(
    *containers: dict[str, Any],
    init: tuple[dict[str, Any], ...] = (),
    sidecars: tuple[str, ...] = (),
    **status: Any,
) -> dict[str, Any]:
    """The pod with the status of its containers and init containers."""
    unready = [one["name"] for one in containers if not one["ready"]]
    spec_init = [
        {"name": one["name"], **({"restartPolicy": "Always"} if one["name"] in sidecars else {})}
        for one in init
    ]
    condition = {
        "type": "Ready",
        "status": "False" if unready else "True",
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }
    if unready:
        condition |= {
            "reason": "ContainersNotReady",
            "message": f"containers with unready status: [{' '.join(unready)}]",
        }
    return {
        "metadata": {
            "name": "agent-x7k2p",
            "namespace": "logging",
            "uid": UID,
            "creationTimestamp": "2026-01-01T12:00:00Z",
        },
        "spec": {"nodeName": "node-1", "initContainers": spec_init},
        "status": {
            "phase": "Running",
            "conditions": [condition, {"type": "PodScheduled", "status": "True"}],
            "initContainerStatuses": list(init),
            "containerStatuses": list(containers),
            **status,
        },
    }


INITIALIZING = container(waiting("PodInitializing"))
SETUP = container(back_off("setup"), end(7), "setup")


def event(reason: str, message: str, at: str = "2026-01-01T12:01:00Z") -> dict[str, Any]:
    """A warning event about the pod."""
    return {
        "metadata": {"name": f"agent-x7k2p.{reason}", "namespace": "logging"},
        "involvedObject": {"kind": "Pod", "name": "agent-x7k2p", "uid": UID},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "firstTimestamp": "2026-01-01T12:00:10Z",
        "lastTimestamp": at,
        "count": 3,
    }


BACK_OFF = event(
    "BackOff", f"Back-off restarting failed container agent in pod {POD}", "2026-01-01T12:02:00Z"
)
MOUNT = event(
    "FailedMount", 'MountVolume.SetUp failed for volume "certs" : secret "absent" not found'
)
READINESS = event("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
LIVENESS = event("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500")
