"""Startup taints: agents that wait for each other, and a taint that no node has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gitops_ds.checks.admission.startup_taints import ANNOTATION, untolerated
from gitops_ds.checks.engine.contexts import ClusterContext, pod_labels, pod_spec
from gitops_ds.checks.engine.rule import Violation, containers, items, rule, section
from gitops_ds.core.finding import Severity, advice
from gitops_ds.core.objects import Key, Path
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.core.startup_taints import OWN
from gitops_ds.kube.apimachinery import daemonsets, label_selector


@rule(advice("DS324", Severity.WARNING, "required agent uses a workload that starts after it"))
def start_without_each_other(cluster: ClusterContext) -> Iterator[Violation]:
    """An agent that nodes wait for needs the Service of a workload that starts only after it."""
    workloads = [manifest for manifest in cluster.manifests.values() if pod_labels(manifest)]
    services = [
        manifest for key, manifest in cluster.manifests.items() if (key.group, key.kind) == _SERVICE
    ]
    behind = {
        service.key: [workload for workload in workloads if _selects(service, workload)]
        for service in services
    }
    for agent in cluster.daemonsets:
        if not daemonsets.is_required_for_work(agent.body):
            continue
        for path, service in _references(agent, services):
            waiting = [workload for workload in behind[service.key] if workload is not agent]
            if waiting and all(_waits(workload) for workload in waiting):
                message = (
                    f"nodes wait for this agent, which uses {service.key}, and the pods of "
                    f"{waiting[0].key} do not tolerate the taint of these nodes: if all nodes are "
                    f"new, none of them starts"
                )
                yield Violation(path, message, object=agent.key, related=waiting[0].key)
                break


@rule(advice("DS325", Severity.INFO, "no pool has the startup taint"))
def some_pool_has_the_taint(cluster: ClusterContext) -> Iterator[Violation]:
    """Nodes wait for an agent, but no declared pool has the taint."""
    census = cluster.census
    if census is None or not census.declared:
        return
    if any(taint.key == OWN.key for node in census.nodes for taint in node.taints):
        return
    required = [
        agent for agent in cluster.daemonsets if daemonsets.is_required_for_work(agent.body)
    ]
    for agent in required[:1]:
        message = (
            f"no pool of the cluster has the taint {OWN.text}: nodes get work before "
            f"{agent.key} is ready; declare the taints of the pools, or let them set it"
        )
        yield Violation(ANNOTATION, message, object=agent.key)


_SERVICE = ("", "Service")


def _selects(service: Manifest, workload: Manifest) -> bool:
    selector = section(section(service.body.get("spec")).get("selector"))
    return bool(
        selector
        and workload.key.namespace == service.key.namespace
        and label_selector.all_match(
            label_selector.of_label_selector({"matchLabels": selector}), pod_labels(workload)
        )
    )


def _waits(workload: Manifest) -> bool:
    """Whether the pods of a workload start only on nodes without the taint."""
    pod = pod_spec(workload)
    return bool(untolerated(pod, (OWN,)))


def _references(agent: Manifest, services: Iterable[Manifest]) -> Iterator[tuple[Path, Manifest]]:
    """The Services whose names the containers of an agent contain, each with its first path."""
    texts = list(_texts(agent.body))
    for service in services:
        names = _names(service.key, agent.key.namespace)
        path = next((path for path, text in texts if _has_host(text, names)), None)
        if path is not None:
            yield path, service


def _names(service: Key, namespace: str) -> tuple[str, ...]:
    full = f"{service.name}.{service.namespace}"
    return (full, service.name) if service.namespace == namespace else (full,)


def _has_host(text: str, names: tuple[str, ...]) -> bool:
    """Whether the text is the address of a Service: `http://NAME.NAMESPACE.svc:80/path`."""
    host = text.partition("://")[2] or text
    host = host.partition("/")[0].partition(":")[0]
    is_address = "://" in text or ":" in text or ".svc" in text
    return is_address and any(
        host in (name, f"{name}.svc") or host.startswith(f"{name}.svc.") for name in names
    )


def _texts(body: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    for path, container in containers(body):
        for field in ("command", "args"):
            for index, text in enumerate(items(container.get(field))):
                yield (*path, field, index), str(text).partition("=")[2] or str(text)
        for index, variable in enumerate(items(container.get("env"))):
            if isinstance(value := section(variable).get("value"), str):
                yield (*path, "env", index, "value"), value
