"""Advice about workloads that another kind, or the operating system, runs better than a DaemonSet.

Source:
https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#alternatives-to-daemonset
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gitops_ds.checks.advice import images
from gitops_ds.checks.engine.rule import POD, Spec, Violation, items, of_daemonsets, rule
from gitops_ds.core.finding import Severity, advice
from gitops_ds.core.objects import Body

_STATIC_POD: Final = "a static pod, which the kubelet starts from a file"
_SERVICE: Final = "a service of the operating system, in the image of the node"
# The last part of an image's path, and the better kind of workload.
_BEFORE_PODS: Final = {
    "etcd": _STATIC_POD,
    "kube-apiserver": _STATIC_POD,
    "kube-controller-manager": _STATIC_POD,
    "kube-scheduler": _STATIC_POD,
    "containerd": _SERVICE,
    "cri-o": _SERVICE,
    "kubelet": _SERVICE,
}
# A command that ends in an endless sleep.
_IDLE: Final = re.compile(
    r"(?P<work>.*?)(?:^|[\s;&])(?:/\S*/)?(?:sleep\s+inf(?:inity)?|tail\s+-f\s+/dev/null)\s*$",
    re.DOTALL,
)
_SHELLS: Final = frozenset(("ash", "bash", "dash", "exec", "sh"))


@rule(advice("DS321", Severity.INFO, "program is required before any pod"))
@of_daemonsets
def needed_before_pods(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """A DaemonSet exists only with an API server and a kubelet, so it starts neither."""
    for index, container in enumerate(items(pod.get("containers"))):
        image = images.parse(str(container.get("image") or ""))
        name = image.repository.rpartition("/")[2]
        if better := _BEFORE_PODS.get(name):
            yield Violation(
                (*POD, "containers", index, "image"),
                f"{name} in a DaemonSet starts only after an API server and a kubelet: use "
                f"{better}",
            )


@rule(advice("DS322", Severity.INFO, "pod prepares its node once", on=False))
@of_daemonsets
def one_time_work(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """The pod prepares its node once, and then does nothing."""
    containers = items(pod.get("containers"))
    prepares = [
        container
        for container in items(pod.get("initContainers"))
        if container.get("restartPolicy") != "Always"
    ]
    if not containers or not all(map(_is_idle, containers)):
        return
    if prepares or any(map(_has_work, containers)):
        yield Violation(
            (*POD, "containers", 0),
            "after its first commands the pod does nothing: prepare the node by its image or its "
            "start script, without a pod on every node",
        )


def _is_idle(container: Spec) -> bool:
    """Whether the container only holds its pod, possibly after some commands."""
    if command := _command(container):
        return _IDLE.match(command) is not None
    name = images.parse(str(container.get("image") or "")).repository.rpartition("/")[2]
    return name == "pause" or name.startswith("pause-")


def _has_work(container: Spec) -> bool:
    """Whether the command of an idle container does something before its sleep."""
    match = _IDLE.match(_command(container))
    return match is not None and any(
        not word.startswith("-") and word.rpartition("/")[2] not in _SHELLS
        for word in match["work"].split()
    )


def _command(container: Spec) -> str:
    words = (*items(container.get("command")), *items(container.get("args")))
    return " ".join(map(str, words))
