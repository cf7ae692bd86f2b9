"""Advice about containers: resources, probes, volumes.

Sources: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/ and
https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.checks.engine import phrases
from gitops_ds.checks.engine.rule import (
    Violation,
    class_of,
    containers,
    items,
    pod_specs,
    rule,
    section,
)
from gitops_ds.core.finding import Fix, Mend, Severity, advice, certain, refused
from gitops_ds.core.objects import Body, Path
from gitops_ds.kube.apimachinery import quantities

# The proposed values without any known usage: the order of magnitude of a node agent.
_PROPOSED: Final[Mapping[str, str]] = {"cpu": "50m", "memory": "64Mi"}
_LATENCY: Final = frozenset({"cni", "csi", "dns"})
_PROBES: Final = ("readinessProbe", "livenessProbe", "startupProbe")
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")


@rule(advice("DS401", Severity.WARNING, "container has no CPU or memory request"))
def requests(body: Body) -> Iterator[Violation]:
    """A container without a CPU or memory request. A limit replaces the request."""
    for _, spec in pod_specs(body):
        whole = _requested(spec)
        for way, container in containers(body):
            requests_of_container = _requested(container)
            missing = [
                name
                for name in ("cpu", "memory")
                if name not in requests_of_container and name not in whole
            ]
            if missing:
                message = (
                    f'"{container.get("name")}" has no request for {" and ".join(missing)}: no '
                    f"capacity is reserved for it, and it is among the first to be evicted under "
                    f"pressure; measure its usage and set requests"
                )
                mends = tuple(
                    Mend((*way, "resources", "requests", name), _PROPOSED[name]) for name in missing
                )
                yield Violation(
                    (*way, "resources"), message, Fix("set requests to the measured usage", mends)
                )


@rule(advice("DS402", Severity.WARNING, "container has no memory limit"))
def memory_limits(body: Body) -> Iterator[Violation]:
    """No memory limit of the container or the pod."""
    for _, spec in pod_specs(body):
        if _limit(spec, "memory"):
            continue
        for way, container in containers(body):
            if not _limit(container, "memory"):
                request = (
                    section(section(container.get("resources")).get("requests")).get("memory")
                    or _PROPOSED["memory"]
                )
                fix = Fix(
                    "set a limit of twice the request",
                    (Mend((*way, "resources", "limits", "memory"), _twice(request)),),
                )
                message = (
                    f'"{container.get("name")}" has no memory limit: a leak exhausts the memory of '
                    f"every node; set a limit"
                )
                yield Violation((*way, "resources"), message, fix)


def _twice(amount: Any) -> str:
    try:
        return quantities.canonical(f"{math.ceil(quantities.parse(amount) * 2 / 1024)}Ki")
    except ValueError:  # DS010 reports it
        return "128Mi"


@rule(advice("DS404", Severity.INFO, "container has a CPU limit", on=False))
def no_cpu_limit(body: Body) -> Iterator[Violation]:
    """A CPU limit throttles an agent that other pods depend on."""
    if class_of(body) in _LATENCY:
        for way, container in containers(body):
            if _limit(container, "cpu"):
                path = (*way, "resources", "limits", "cpu")
                message = (
                    "the CPU limit throttles an agent that every pod of the node depends on; a "
                    "request is sufficient"
                )
                yield Violation(path, message, Fix("remove the limit", (Mend(path),)))


@rule(advice("DS405", Severity.WARNING, "no container has a readiness probe"))
def readiness(body: Body) -> Iterator[Violation]:
    """No container of the agent has a readiness probe."""
    if body.get("kind") != "DaemonSet":
        return
    for path, _ in pod_specs(body):
        if not any(container.get("readinessProbe") for _, container in containers(body)):
            yield Violation(
                (*path, "containers", 0),
                "no container has a readiness probe: a pod is ready once started, and a rollout "
                "continues even if it does not work",
            )


@rule(advice("DS406", Severity.INFO, "liveness probe is missing", on=False))
def liveness(body: Body) -> Iterator[Violation]:
    """A container without a liveness probe is not restarted when it hangs."""
    for way, container in _running(body):
        if not container.get("livenessProbe"):
            yield Violation(
                way,
                f'"{container.get("name")}" has no liveness probe: a hanging container is not '
                f"restarted",
            )


@rule(
    advice(
        "DS407", Severity.WARNING, "liveness probe fails as early as the readiness probe", on=False
    )
)
def probes_differ(body: Body) -> Iterator[Violation]:
    """The liveness probe fails as early as the same readiness probe."""
    for way, container in _running(body):
        ready, alive = (
            section(container.get("readinessProbe")),
            section(container.get("livenessProbe")),
        )
        if (
            ready
            and alive
            and _handler(ready) == _handler(alive)
            and _patience(alive) <= _patience(ready)
        ):
            message = (
                "the liveness probe equals the readiness probe and fails as early: a load that "
                "slows down all agents restarts all of them at once; raise its failureThreshold, "
                "or probe something else"
            )
            yield Violation((*way, "livenessProbe"), message)


def _handler(probe: Mapping[str, Any]) -> Any:
    return [(name, probe.get(name)) for name in _HANDLERS if probe.get(name) is not None]


def _patience(probe: Mapping[str, Any]) -> int:
    """Seconds until a probe fails, with the defaults of the API."""
    return int(probe.get("periodSeconds") or 10) * int(probe.get("failureThreshold") or 3)


@rule(certain("DS408", "probe port name not found"))
def named_ports(body: Body) -> Iterator[Violation]:
    """The port name of a probe must be declared by its container."""
    for way, container in containers(body):
        for path, port in _probe_ports(way, container):
            if isinstance(port, str) and not port.isdigit():
                names = [
                    declared_port.get("name") for declared_port in items(container.get("ports"))
                ]
                if port not in names:
                    named = [str(name) for name in names if name]
                    message = (
                        f'the container has no port "{port}" '
                        f"({', '.join(named) or 'no port has a name'}): it never becomes ready"
                    )
                    meant = named[0] if len(named) == 1 else phrases.nearest(port, named)
                    if meant:
                        yield Violation(
                            path, message, Fix(f"probe the port {meant}", (Mend(path, meant),))
                        )
                    else:
                        yield Violation(path, message)


@rule(advice("DS408", Severity.INFO, "probe port is not declared"))
def numbered_ports(body: Body) -> Iterator[Violation]:
    """An undeclared port number works, but is often a typo if the container declares other
    ports.
    """
    for way, container in containers(body):
        declared = [
            declared_port.get("containerPort") for declared_port in items(container.get("ports"))
        ]
        if declared:
            undeclared = {
                port: path for path, port in _probe_ports(way, container) if port not in declared
            }
            for port, path in undeclared.items():
                if isinstance(port, int):
                    yield Violation(
                        path,
                        f"port {port} is not declared by the container "
                        f"({', '.join(map(str, declared))})",
                    )


def _probe_ports(way: Path, container: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    for name in _PROBES:
        probe = container.get(name)
        if probe:
            for handler in ("httpGet", "tcpSocket", "grpc"):
                action = probe.get(handler)
                # A probe of another host does not use the ports of the container.
                # https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/#http-probes
                if action and not action.get("host"):
                    yield (*way, name, handler, "port"), action.get("port")


@rule(refused("DS409", "successThreshold of a liveness probe must be 1"))
def one_success(body: Body) -> Iterator[Violation]:
    """successThreshold above 1 is allowed for readiness probes only."""
    for way, container in containers(body):
        for name in ("livenessProbe", "startupProbe"):
            threshold = section(container.get(name)).get("successThreshold")
            if threshold not in (None, 0, 1):
                path = (*way, name, "successThreshold")
                yield Violation(
                    path,
                    f"successThreshold of a {name} must be 1, not {threshold}",
                    Fix("remove it", (Mend(path),), safe=True),
                )


@rule(advice("DS409", Severity.WARNING, "probe timeout exceeds its period", on=False))
def timeouts_within_periods(body: Body) -> Iterator[Violation]:
    """A probe should end before the next one starts."""
    for way, container in containers(body):
        for name in _PROBES:
            probe = section(container.get(name))
            period, timeout = probe.get("periodSeconds") or 10, probe.get("timeoutSeconds") or 1
            if timeout > period:
                path = (*way, name, "timeoutSeconds")
                message = (
                    f"the timeout of the probe ({timeout} s) must be less than its period "
                    f"({period} s)"
                )
                yield Violation(
                    path, message, Fix("set timeoutSeconds below the period", (Mend(path, period),))
                )


# A shell loop with a sleep of minutes: `while true; do collect; sleep 3600; done`.
_LOOP: Final = re.compile(
    r"\b(?:while|until)\b.*\bsleep\s+(?:\d{3,}|\d+(?:\.\d+)?[mhd]\b)", re.DOTALL
)


@rule(advice("DS319", Severity.INFO, "container runs a periodic job", on=False))
def periodic_work(body: Body) -> Iterator[Violation]:
    """Periodic work belongs to a CronJob, or to a timer of the node."""
    if body.get("kind") != "DaemonSet":
        return
    for way, container in _running(body):
        for field in ("command", "args"):
            if _LOOP.search(" ".join(map(str, items(container.get(field))))):
                message = (
                    "a loop with a sleep keeps a pod on every node for periodic work: use a "
                    "CronJob if any node is sufficient, or a timer of the operating system if "
                    "every node is required"
                )
                yield Violation((*way, field), message)


@rule(advice("DS415", Severity.INFO, "volume is not mounted"))
def used_volumes(body: Body) -> Iterator[Violation]:
    """A volume that no container mounts."""
    for path, spec in pod_specs(body):
        if not spec.get("volumes"):
            continue
        used = {
            mount.get("name")
            for _, container in containers(body)
            for field in ("volumeMounts", "volumeDevices")
            for mount in items(container.get(field))
        }
        for index, volume in enumerate(items(spec.get("volumes"))):
            if volume.get("name") not in used:
                way = (*path, "volumes", index)
                message = f'no container mounts the volume "{volume.get("name")}": remove it'
                yield Violation(way, message, Fix("remove the volume", (Mend(way),), safe=True))


@rule(advice("DS420", Severity.WARNING, "emptyDir in memory has no sizeLimit", on=False))
def bounded_memory_volumes(body: Body) -> Iterator[Violation]:
    """A volume in memory without a size limit."""
    for path, spec in pod_specs(body):
        for index, volume in enumerate(items(spec.get("volumes"))):
            empty = section(volume.get("emptyDir"))
            if empty.get("medium") == "Memory" and empty.get("sizeLimit") is None:
                way = (*path, "volumes", index, "emptyDir")
                message = (
                    f'the volume "{volume.get("name")}" is in memory without a limit, on every '
                    f"node: set a sizeLimit"
                )
                yield Violation(
                    way, message, Fix("set a sizeLimit", (Mend((*way, "sizeLimit"), "64Mi"),))
                )


def _running(body: Body) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The long-running containers: all but init containers, and sidecars."""
    return (
        (way, container)
        for way, container in containers(body)
        if way[-2] == "containers" or container.get("restartPolicy") == "Always"
    )


def _requested(holder: Mapping[str, Any]) -> set[str]:
    """The resources with a request. A limit is the default of a request."""
    resources = section(holder.get("resources"))
    return {*section(resources.get("requests")), *section(resources.get("limits"))}


def _limit(holder: Mapping[str, Any], name: str) -> Any:
    return section(section(holder.get("resources")).get("limits")).get(name)
