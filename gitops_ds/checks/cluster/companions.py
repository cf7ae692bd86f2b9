"""Objects that select an agent's pods by labels, directly or through another object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.checks.engine.contexts import ClusterContext, pod_labels
from gitops_ds.checks.engine.rule import POD, Violation, at, pod_path, rule, section, template
from gitops_ds.core.finding import Fix, Mend, Severity, advice
from gitops_ds.core.objects import Body, Path
from gitops_ds.core.sources.bundle import Manifest, Requirement
from gitops_ds.kube.apimachinery import label_selector

_BUDGET: Final = ("policy", "PodDisruptionBudget")
# The path of each kind's pod selector; that of a Service is a plain mapping of labels.
_SELECTORS: Final[Mapping[tuple[str, str], Path]] = {
    ("", "Service"): ("spec", "selector"),
    _BUDGET: ("spec", "selector"),
    ("networking.k8s.io", "NetworkPolicy"): ("spec", "podSelector"),
    ("monitoring.coreos.com", "PodMonitor"): ("spec", "selector"),
}
_SERVICE_MONITOR: Final = ("monitoring.coreos.com", "ServiceMonitor")


@rule(advice("DS106", Severity.WARNING, "selector of a companion object matches no pods", on=False))
def companions_match(cluster: ClusterContext) -> Iterator[Violation]:
    """An object of an agent selects no pods.

    The rule reports an object only if it belongs to a DaemonSet: it is in the folder of the
    DaemonSet or shares a label with its pods, and no other workload of the repository has the
    labels.
    """
    pods = [
        (manifest, labels)
        for manifest in cluster.manifests.values()
        if (labels := _pod_labels(manifest.body))
    ]
    services = [
        service
        for service in cluster.manifests.values()
        if (service.key.group, service.key.kind) == ("", "Service")
    ]
    for manifest in cluster.manifests.values():
        kind = (manifest.key.group, manifest.key.kind)
        path = _SELECTORS.get(kind)
        if path and (selector := _selector(manifest.body, path, plain=kind == ("", "Service"))):
            there = [
                (pod, labels) for pod, labels in pods if pod.key.namespace == manifest.key.namespace
            ]
            if any(label_selector.all_match(selector, labels) for _, labels in there):
                continue
            meant = next(
                (pod for pod, labels in there if _meant_for(manifest, selector, pod, labels)), None
            )
            if meant is not None:
                message = (
                    f"no pods in the repository match the selector, including those of "
                    f"{meant.key}: "
                    f"{_effect(kind)}"
                )
                yield Violation(path, message, object=manifest.key, related=meant.key)
        elif kind == _SERVICE_MONITOR:
            yield from _monitor(manifest, services)


def _meant_for(
    companion: Manifest, selector: tuple[Requirement, ...], one: Manifest, labels: Mapping[str, str]
) -> bool:
    if one.key.kind != "DaemonSet":
        return False
    if companion.agent:
        return companion.agent == one.agent
    return any(
        label_selector.matches(requirement, labels)
        for requirement in selector
        if requirement.operator == "In"
    )


def _monitor(monitor: Manifest, services: list[Manifest]) -> Iterator[Violation]:
    """The violation of a ServiceMonitor, which selects Services by their labels. Services of other
    namespaces can be defined elsewhere.
    """
    spec = section(monitor.body.get("spec"))
    selector = label_selector.of_label_selector(section(spec.get("selector")))
    near = [
        service
        for service in services
        if service.key.namespace == monitor.key.namespace and service.agent == monitor.agent
    ]
    if not selector or spec.get("namespaceSelector") or not near:
        return
    if not any(label_selector.all_match(selector, _labels(service.body)) for service in near):
        message = (
            f"no Service in the repository matches the selector, including {near[0].key}: nothing "
            f"is scraped"
        )
        yield Violation(("spec", "selector"), message, object=monitor.key, related=near[0].key)


def _effect(kind: tuple[str, str]) -> str:
    return (
        "it has no effect"
        if kind[1] in ("PodDisruptionBudget", "NetworkPolicy")
        else "it has no endpoints"
    )


_SHARED: Final = frozenset(("kube-system", "kube-public", "kube-node-lease"))


@rule(advice("DS017", Severity.INFO, "agent shares its namespace", on=False))
def own_namespace(cluster: ClusterContext) -> Iterator[Violation]:
    """An agent shares its namespace with another one, or uses a namespace of Kubernetes."""
    first: dict[str, Manifest] = {}
    for manifest in cluster.daemonsets:
        namespace = manifest.key.namespace
        one = first.setdefault(namespace, manifest)
        if namespace in _SHARED:
            yield Violation(
                ("metadata", "namespace"),
                f"{namespace} is reserved for Kubernetes: use a dedicated namespace",
                object=manifest.key,
            )
        elif one is not manifest and not (one.agent and one.agent == manifest.agent):
            message = (
                f"{one.key} is in the namespace {namespace} as well: permissions in it apply to "
                f"both"
            )
            yield Violation(
                ("metadata", "namespace"), message, object=manifest.key, related=one.key
            )


@rule(advice("DS018", Severity.WARNING, "cluster-scoped object has a namespace"))
def without_scope(cluster: ClusterContext) -> Iterator[Violation]:
    """An object whose kind has no namespace, by Kubernetes or by a definition in the
    repository, has one; the API server drops it, so it limits nothing.
    """
    path = ("metadata", "namespace")
    for key, manifest in cluster.manifests.items():
        written = section(manifest.body.get("metadata")).get("namespace")
        if written and not key.namespace and not manifest.scope_unknown:
            yield Violation(
                path,
                f"a {key.kind} belongs to the whole cluster: the namespace {written} has no "
                "effect, also not for apply.allow.namespaces",
                Fix("remove metadata.namespace", (Mend(path),), safe=True),
                object=key,
            )


@rule(advice("DS108", Severity.INFO, "metrics of the agent are not scraped", on=False))
def monitored(cluster: ClusterContext) -> Iterator[Violation]:
    """No PodMonitor, no ServiceMonitor with a Service, and no annotation of Prometheus'
    example configuration.
    """
    bodies = [(manifest.key, manifest.body) for manifest in cluster.manifests.values()]
    monitors = [
        (key, section(body.get("spec")))
        for key, body in bodies
        if key.group == "monitoring.coreos.com"
    ]
    for manifest in cluster.daemonsets:
        pods = pod_labels(manifest)
        annotations = section(section(template(manifest.body).get("metadata")).get("annotations"))
        services = [
            body
            for key, body in bodies
            if (key.group, key.kind, key.namespace) == ("", "Service", manifest.key.namespace)
            and (selector := _selector(body, ("spec", "selector"), plain=True))
            and label_selector.all_match(selector, pods)
        ]
        matches = [
            key
            for key, spec in monitors
            for labels in (
                [pods] if key.kind == "PodMonitor" else [_labels(service) for service in services]
            )
            if label_selector.all_match(
                label_selector.of_label_selector(section(spec.get("selector"))), labels
            )
        ]
        if str(annotations.get("prometheus.io/scrape")).lower() != "true" and not matches:
            message = (
                "nothing here collects its metrics: no PodMonitor, no ServiceMonitor, no "
                "prometheus.io/scrape"
            )
            yield Violation(POD, message, object=manifest.key)


@rule(advice("DS107", Severity.INFO, "PodDisruptionBudget has no effect on a DaemonSet", on=False))
def budgets_for_others(cluster: ClusterContext) -> Iterator[Violation]:
    """A PodDisruptionBudget for a DaemonSet, whose pods are not evicted by a drain."""
    for manifest in cluster.manifests.values():
        if (manifest.key.group, manifest.key.kind) != _BUDGET:
            continue
        selector = _selector(manifest.body, ("spec", "selector"), plain=False)
        for daemonset in cluster.daemonsets:
            same = daemonset.key.namespace == manifest.key.namespace
            if selector and same and label_selector.all_match(selector, pod_labels(daemonset)):
                message = (
                    f"it is for the pods of {daemonset.key}, and has no effect: a drain ignores "
                    "them, and a rollout uses maxUnavailable; remove it"
                )
                yield Violation(
                    ("spec", "selector"), message, object=manifest.key, related=daemonset.key
                )


def _selector(body: Body, path: Path, *, plain: bool) -> tuple[Requirement, ...]:
    selector: Mapping[str, Any] = section(at(body, path))
    return label_selector.of_label_selector({"matchLabels": selector} if plain else selector)


def _pod_labels(body: Body) -> Mapping[str, str]:
    path = pod_path(body)
    return {} if path is None else _labels(section(at(body, path)))


def _labels(holder: Mapping[str, Any]) -> Mapping[str, str]:
    return {
        str(key): str(value)
        for key, value in section(section(holder.get("metadata")).get("labels")).items()
    }
