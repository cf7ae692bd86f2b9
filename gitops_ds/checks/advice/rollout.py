"""Advice about the rollout of a DaemonSet: rollouts that hang, cannot be stopped, or cannot be
rolled back.

Source: https://kubernetes.io/docs/tasks/manage-daemon/update-daemon-set/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from gitops_ds.checks.engine.rule import (
    POD,
    SPEC,
    Spec,
    Violation,
    class_of,
    containers,
    items,
    of_daemonsets,
    pod_specs,
    rule,
    section,
)
from gitops_ds.core.finding import Fix, Mend, Severity, advice, refused
from gitops_ds.core.objects import Body, Path
from gitops_ds.kube.apimachinery import capacity

_STRATEGY: Final[Path] = (*SPEC, "updateStrategy")
_ROLLING: Final[Path] = (*_STRATEGY, "rollingUpdate")
_READY_SECONDS: Final[Path] = (*SPEC, "minReadySeconds")
_GRACE: Final[Path] = (*POD, "terminationGracePeriodSeconds")

_PERCENT: Final = re.compile(r"([0-9]{1,9})%\Z", re.ASCII)
_SLEEP: Final = re.compile(r"(?:^|[\s;&|/])sleep\s+([0-9]{1,9})s?(?![\w.])", re.ASCII)
UPDATE_TOGETHER_AT_MOST: Final = {"cni": 10, "csi": 10, "dns": 10}  # per cent
ALL_BUT_THE_LAST: Final = 99
_DEFAULT_GRACE: Final = 30
_LONG_GRACE: Final = 300
_LONG_BATCH: Final = 600


@rule(advice("DS203", Severity.ERROR, "host ports conflict during a surge"))
@of_daemonsets
def surge_has_room(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """During a surge the new pod needs a host port that the old pod still uses.

    The API server accepts it: https://github.com/kubernetes/kubernetes/issues/106417
    """
    surge = _rolling(spec).get("maxSurge")
    if not _some(surge):
        return
    taken = next(capacity.host_ports(pod), None)
    if taken is None:
        return
    message = (
        f"with maxSurge the new pod starts while the old one runs, and both use the host port "
        f"{taken[2]}/{taken[0]}: the new pod stays Pending, and the rollout hangs. Use "
        f"maxUnavailable"
    )
    mends = (Mend((*_ROLLING, "maxUnavailable"), surge), Mend((*_ROLLING, "maxSurge")))
    yield Violation(
        (*_ROLLING, "maxSurge"),
        message,
        Fix(f"maxUnavailable: {surge} in place of maxSurge", mends),
    )


@rule(advice("DS205", Severity.ERROR, "maxUnavailable covers too many nodes"))
@of_daemonsets
def few_at_a_time(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """If no nodes are known: maxUnavailable covers all nodes, or more than a few for an
    agent of network, storage or DNS.
    """
    share = _PERCENT.match(str(_rolling(spec).get("maxUnavailable")))
    if share is None:
        return
    together, kind = int(share[1]), class_of(body)
    most = UPDATE_TOGETHER_AT_MOST.get(kind, ALL_BUT_THE_LAST)
    if together > most:
        what = (
            "on every node at once" if together >= 100 else f"on {together}% of the nodes at once"
        )
        message = (
            f"maxUnavailable {share[0]}: a bad image removes the agent {what}; set "
            f"{min(most, 10)}% or less"
        )
        yield Violation(
            (*_ROLLING, "maxUnavailable"),
            message,
            Fix("maxUnavailable: 10%", (Mend((*_ROLLING, "maxUnavailable"), "10%"),)),
        )


@rule(advice("DS207", Severity.WARNING, "updateStrategy is OnDelete"))
@of_daemonsets
def rolls_by_itself(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """With OnDelete a merge replaces no pod."""
    if section(spec.get("updateStrategy")).get("type") == "OnDelete":
        message = (
            "with OnDelete a change reaches a node only after its pod is deleted; use RollingUpdate"
        )
        yield Violation(
            (*_STRATEGY, "type"),
            message,
            Fix("type: RollingUpdate", (Mend((*_STRATEGY, "type"), "RollingUpdate"),)),
        )


_WAIT: Final = Fix("minReadySeconds: 10", (Mend(_READY_SECONDS, 10),))


@rule(advice("DS208", Severity.WARNING, "minReadySeconds is not set"))
@of_daemonsets
def waits_after_ready(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """minReadySeconds is missing. Without a readiness probe DS209 reports it."""
    if not spec.get("minReadySeconds") and _rolls(spec) and _has_readiness(pod):
        message = (
            "a pod is available as soon as it is ready, so a pod that crashes shortly after does "
            "not stop the rollout; set 10 to 30"
        )
        yield Violation(_READY_SECONDS, message, _WAIT)


@rule(advice("DS209", Severity.ERROR, "no readiness check stops a bad rollout"))
@of_daemonsets
def something_stops_it(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """Neither a readiness probe nor minReadySeconds stops a bad rollout."""
    if not spec.get("minReadySeconds") and _rolls(spec) and not _has_readiness(pod):
        message = (
            "blind rollout: without a readiness probe and minReadySeconds a pod is available as "
            "soon as it has started, so a bad image reaches every node; set a readinessProbe, and "
            "minReadySeconds to 10 or more"
        )
        yield Violation(_READY_SECONDS, message, _WAIT)


@rule(refused("DS210", "preStop sleep exceeds the termination grace period"))
def sleeps_end_in_time(body: Body) -> Iterator[Violation]:
    """The sleep of a hook must not exceed the termination grace period.

    Source: validateSleepAction in pkg/apis/core/validation/validation.go of Kubernetes.
    """
    for _, pod in pod_specs(body):
        period = pod.get("terminationGracePeriodSeconds")
        grace = _DEFAULT_GRACE if period is None else period
        for way, container in containers(body):
            lifecycle = section(container.get("lifecycle"))
            for name in ("postStart", "preStop") if lifecycle else ():
                seconds = section(section(lifecycle.get(name)).get("sleep")).get("seconds")
                if seconds is not None and not 0 <= seconds <= grace:
                    path = (*way, "lifecycle", name, "sleep", "seconds")
                    yield Violation(
                        path,
                        f"a sleep must be between 0 and {grace} seconds "
                        f"(terminationGracePeriodSeconds), not {seconds}",
                    )


@rule(advice("DS210", Severity.WARNING, "termination grace period is too short or too long"))
@of_daemonsets
def time_to_end(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """A termination grace period that is too short for the agent, or makes every node wait
    for minutes.
    """
    period = pod.get("terminationGracePeriodSeconds")
    grace = _DEFAULT_GRACE if period is None else period
    if grace == 0:
        yield Violation(
            _GRACE,
            "0 kills the agent at once, and unwritten data is lost; a staged rollout needs several "
            f"tries for a node. Set the seconds that it needs (default {_DEFAULT_GRACE})",
        )
    elif grace > _LONG_GRACE:
        yield Violation(
            _GRACE,
            f"a rollout may wait {grace} seconds for each old pod; set {_LONG_GRACE} or less",
        )
    if not grace:
        return
    for index, container in enumerate(items(pod.get("containers"))):
        hook = section(section(container.get("lifecycle")).get("preStop"))
        seconds = _sleep(hook)
        refused = section(hook.get("sleep")) and seconds > grace  # `sleeps_end_in_time` reports it
        if seconds >= grace and not refused:
            way = (*POD, "containers", index, "lifecycle", "preStop")
            yield Violation(
                way,
                f"the preStop hook sleeps {seconds} of {grace} terminationGracePeriodSeconds: no "
                "time is left to terminate",
            )


def _sleep(hook: Spec) -> int:
    """The minimum duration of a hook's sleep in seconds."""
    if seconds := section(hook.get("sleep")).get("seconds"):
        return int(seconds)
    match = (
        _SLEEP.search(" ".join(map(str, items(section(hook.get("exec")).get("command")))))
        if hook
        else None
    )
    return int(match[1]) if match else 0


@rule(advice("DS211", Severity.WARNING, "revisionHistoryLimit is 0"))
@of_daemonsets
def way_back(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """revisionHistoryLimit keeps no revision for a rollback."""
    kept = spec.get("revisionHistoryLimit")
    if kept in (0, 1):
        path = (*SPEC, "revisionHistoryLimit")
        message = (
            f"with {kept} old revision{'s' if kept == 0 else ''} a rollback may have no target; "
            f"remove it (default 10)"
        )
        yield Violation(path, message, Fix("remove revisionHistoryLimit", (Mend(path),), safe=True))


@rule(
    advice("DS212", Severity.WARNING, "readiness delay of each batch exceeds ten minutes", on=False)
)
@of_daemonsets
def ends_in_time(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """A rollout takes hours because of the minimum duration of each batch."""
    probes = [
        section(container.get("readinessProbe")) for container in items(pod.get("containers"))
    ]
    delay, wait = (
        max((probe.get("initialDelaySeconds") or 0 for probe in probes), default=0),
        spec.get("minReadySeconds") or 0,
    )
    if delay + wait > _LONG_BATCH:
        message = (
            f"each batch of a rollout takes at least {delay + wait} seconds (delay of the probe "
            f"and minReadySeconds): reduce them"
        )
        yield Violation(_READY_SECONDS, message)


def _rolling(spec: Spec) -> Spec:
    """The numbers of a rolling update; empty with OnDelete, which does not use them."""
    return section(section(spec.get("updateStrategy")).get("rollingUpdate")) if _rolls(spec) else {}


def _rolls(spec: Spec) -> bool:
    return section(spec.get("updateStrategy")).get("type") != "OnDelete"


def _some(amount: Any) -> bool:
    share = _PERCENT.match(str(amount))
    return bool(int(share[1]) if share else amount)


def _has_readiness(pod: Spec) -> bool:
    return any(
        section(container).get("readinessProbe")
        for container in (*items(pod.get("containers")), *_sidecars(pod))
    )


def _sidecars(pod: Spec) -> list[Spec]:
    return [
        container
        for container in items(pod.get("initContainers"))
        if container.get("restartPolicy") == "Always"
    ]
