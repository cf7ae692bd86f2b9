"""The cause of a failure, from the status of a pod and its events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gitops_ds.core.daemonset import PodCause
from gitops_ds.core.objects import POD
from gitops_ds.kube.apimachinery import pod_cause, pods, timestamps
from gitops_ds.kube.client import received_bodies
from tests.apimachinery.kubelet_pods import (
    BACK_OFF,
    EXEC,
    INITIALIZING,
    LIVENESS,
    MOUNT,
    READINESS,
    SETUP,
    UID,
    back_off,
    container,
    end,
    event,
    pod,
    running,
    waiting,
)

PROXY = container(back_off("proxy"), end(4), "proxy")
DONE = container(end(0, "Completed"), name="setup")
CREATING = container(waiting("ContainerCreating"))
PULL = 'Back-off pulling image "agent:2": ErrImagePull: not found'

# The word of the decision, the pod, its events; the reason and the message.
CASES: dict[str, tuple[str, dict[str, Any], tuple[dict[str, Any], ...], str, str]] = {
    "init container in back-off": (
        "CrashLoopBackOff",
        pod(INITIALIZING, init=(SETUP,)),
        (BACK_OFF,),
        "Init:CrashLoopBackOff",
        "init container setup: exit code 7",
    ),
    "init container ended": (
        "Restarted",
        pod(INITIALIZING, init=(container(end(7), end(7), "setup"),)),
        (),
        "Init:Error",
        "init container setup: exit code 7",
    ),
    "init container without memory": (
        "CrashLoopBackOff",
        pod(INITIALIZING, init=(container(back_off("setup"), end(137, "OOMKilled"), "setup"),)),
        (),
        "Init:OOMKilled",
        "init container setup: exit code 137",
    ),
    "sidecar container": (
        "CrashLoopBackOff",
        pod(container(running(), ready=True), init=(DONE, PROXY), sidecars=("proxy",)),
        (),
        "CrashLoopBackOff",
        "container proxy: exit code 4",
    ),
    "program does not exist": (
        "CrashLoopBackOff",
        pod(container(back_off(), end(128, "StartError", message=EXEC))),
        (BACK_OFF,),
        "StartError",
        f"container agent: exit code 128: {EXEC}",
    ),
    "program does not exist, at once": (
        "RunContainerError",
        pod(container(waiting("RunContainerError", EXEC))),
        (),
        "RunContainerError",
        f"container agent: {EXEC}",
    ),
    "crash": (
        "CrashLoopBackOff",
        pod(container(back_off(), end(3, message="panic: no\nconfig\n"))),
        (BACK_OFF,),
        "CrashLoopBackOff",
        "container agent: exit code 3: panic: no config",
    ),
    "crash, running again": (
        "Restarted",
        pod(container(running(), end(3))),
        (),
        "Restarted",
        "container agent: exit code 3",
    ),
    "the program ends": (
        "CrashLoopBackOff",
        pod(container(back_off(), end(0, "Completed"))),
        (),
        "CrashLoopBackOff",
        "container agent: exit code 0",
    ),
    "Secret of a volume missing": (
        "NotReady",
        pod(CREATING, phase="Pending"),
        (MOUNT,),
        "FailedMount",
        (
            'MountVolume.SetUp failed for volume "certs" : secret "absent" not found; '
            "containers with unready status: [agent]"
        ),
    ),
    "the same without events": (
        "NotReady",
        pod(CREATING, phase="Pending"),
        (),
        "NotReady",
        "containers with unready status: [agent]",
    ),
    "Secret of a variable missing": (
        "CreateContainerConfigError",
        pod(container(waiting("CreateContainerConfigError", 'secret "absent" not found'))),
        (event("Failed", 'Error: secret "absent" not found'),),
        "CreateContainerConfigError",
        'container agent: secret "absent" not found',
    ),
    "out of memory": (
        "OOMKilled",
        pod(container(running(), end(137, "OOMKilled"))),
        (),
        "OOMKilled",
        "container agent: exit code 137",
    ),
    "killed by a signal": (
        "Restarted",
        pod(container(running(), end(137, signal=9))),
        (),
        "Restarted",
        "container agent: exit code 137, signal 9",
    ),
    "never ready": (
        "NotReady",
        pod(container(running())),
        (READINESS,),
        "Unhealthy",
        (
            "Readiness probe failed: HTTP probe failed with statuscode: 503; "
            "containers with unready status: [agent]"
        ),
    ),
    "liveness": (
        "CrashLoopBackOff",
        pod(container(back_off(), end(137))),
        (BACK_OFF, LIVENESS),
        "CrashLoopBackOff",
        (
            "container agent: exit code 137; "
            "Unhealthy: Liveness probe failed: HTTP probe failed with statuscode: 500"
        ),
    ),
    "crash after a wait for a node": (
        "Restarted",
        pod(container(end(1))),
        (event("FailedScheduling", "0/3 nodes are available: 1 Insufficient cpu."),),
        "Restarted",
        "container agent: exit code 1",
    ),
    "no image": (
        "ImagePullBackOff",
        pod(container(waiting("ImagePullBackOff", PULL))),
        (event("Failed", "Error: ImagePullBackOff"), event("BackOff", PULL)),
        "ImagePullBackOff",
        f"container agent: {PULL}",
    ),
    "no sandbox": (
        "NotReady",
        pod(CREATING, phase="Pending"),
        (event("FailedCreatePodSandBox", "plugin type=x failed (add): no IP addresses"),),
        "FailedCreatePodSandBox",
        "plugin type=x failed (add): no IP addresses; containers with unready status: [agent]",
    ),
    "no room": (
        "Unschedulable",
        pod(
            phase="Pending",
            conditions=[
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/3 nodes are available: 1 Insufficient cpu.",
                }
            ],
        ),
        (event("FailedScheduling", "0/3 nodes are available: 1 Insufficient cpu."),),
        "Unschedulable",
        "0/3 nodes are available: 1 Insufficient cpu.",
    ),
    "evicted": (
        "Evicted",
        pod(
            container(end(137)),
            phase="Failed",
            reason="Evicted",
            message="The node was low on resource: memory. ",
        ),
        (),
        "Evicted",
        "The node was low on resource: memory.",
    ),
    "ended for good": (
        "Failed",
        pod(container(end(5)), phase="Failed"),
        (),
        "Failed",
        "container agent: exit code 5",
    ),
}


@pytest.mark.parametrize(("word", "body", "events", "reason", "message"), CASES.values(), ids=CASES)
def test_the_cause_has_the_words_of_kubernetes(
    word: str, body: dict[str, Any], events: tuple[Any, ...], reason: str, message: str
) -> None:
    read = pods.pod_of(body)
    warning = pod_cause.newest_warning(events)
    cause = pod_cause.shown(read, word, {UID: warning} if warning else {})
    assert cause == PodCause(reason, message)
    assert read.name not in cause.message
    assert word in (read.trouble, "NotReady", "Restarted", "OOMKilled")


@pytest.mark.parametrize("body", [case[1] for case in CASES.values()], ids=CASES)
def test_a_cut_pod_has_the_same_cause(body: dict[str, Any]) -> None:
    text = json.dumps(body).encode()
    assert pods.pod_of(received_bodies.ITEMS[POD](text)) == pods.pod_of(body)


def test_a_long_message_is_one_line_of_bounded_length() -> None:
    read = pods.pod_of(pod(container(back_off(), end(1, message="x\n" * 2000))))
    long = {UID: PodCause("Unhealthy", "y" * 5000)}
    for message in (read.message, pod_cause.shown(read, "CrashLoopBackOff", long).message):
        assert len(message) == 500
        assert message.isprintable()


def test_a_healthy_pod_has_no_cause() -> None:
    read = pods.pod_of(pod(container(running(), ready=True), init=(DONE,)))
    assert (read.trouble, read.reason, read.message, read.settles_at) == ("", "", "", 0.0)


@pytest.mark.parametrize(
    ("last", "seconds"),
    [
        (end(137, ran=5), 60),
        (end(0, "Completed", ran=5), 60),  # a program that handles SIGTERM
        (end(1, ran=90), 180),
        (end(1, ran=400), 600),
        (end(1, ran=599), 600),
        (end(1, ran=600), None),
        (end(128, "StartError", startedAt="1970-01-01T00:00:00Z"), 60),
        (end(137, "ContainerStatusUnknown", startedAt=None, finishedAt=None), 60),
        (None, None),
    ],
)
def test_a_restarted_container_settles_in_twice_its_last_run(
    last: dict[str, Any] | None, seconds: int | None
) -> None:
    read = pods.pod_of(pod(container(running(), last, ready=True)))
    began = timestamps.seconds("2026-01-01T12:00:31Z") or 0.0
    assert read.settles_at == (0.0 if seconds is None else began + seconds)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ((), None),
        ((BACK_OFF,), "BackOff"),
        ((BACK_OFF, LIVENESS), "Unhealthy"),  # the newer BackOff has no cause
        ((event("DNSConfigForming", "limits", "2026-01-01T12:03:00Z"), MOUNT), "FailedMount"),
        ((event("DNSConfigForming", "limits", "2026-01-01T12:03:00Z"),), None),
        ((MOUNT, event("Unhealthy", "no", "2026-01-01T12:03:00Z")), "Unhealthy"),
        ((event("Unhealthy", "no", "2026-01-01T11:00:00Z"), MOUNT), "FailedMount"),
        (({**MOUNT, "type": "Normal"},), None),
        (({**MOUNT, "message": ""},), None),
    ],
)
def test_the_newest_warning_that_does_not_repeat_the_status_counts(
    events: tuple[Any, ...], reason: str | None
) -> None:
    warning = pod_cause.newest_warning(events)
    assert (warning.reason if warning else None) == reason


def test_a_failed_readiness_probe_counts_only_without_another_failure() -> None:
    readiness = event("Unhealthy", "Readiness probe failed: refused", "2026-01-01T12:09:00Z")
    for events, message in (((LIVENESS, readiness), LIVENESS), ((BACK_OFF, readiness), readiness)):
        warning = pod_cause.newest_warning(events)
        assert warning is not None
        assert warning.message == message["message"]
