"""Host ports that services of the node already use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.apimachinery import capacity
from gitops_ds.checks.engine.rule import POD, Violation, items, of_daemonsets
from gitops_ds.model.objects import Body

# https://kubernetes.io/docs/reference/networking/ports-and-protocols/, and other common
# services of nodes.
_SERVICES: Final = {
    22: "sshd",
    2379: "etcd",
    2380: "etcd",
    6443: "kube-apiserver",
    9100: "node-exporter",
    10248: "kubelet",
    10249: "kube-proxy",
    10250: "kubelet",
    10255: "kubelet",
    10256: "kube-proxy",
    10257: "kube-controller-manager",
    10259: "kube-scheduler",
}


@of_daemonsets
def free_of_services(
    body: Body, spec: Mapping[str, Any], pod: Mapping[str, Any]
) -> Iterator[Violation]:
    """DS609: a host port of a service of the node. The agent itself can be that service."""
    own = " ".join(
        str(one.get("image") or "").replace("_", "-") for one in items(pod.get("containers"))
    )
    for protocol, _, port in capacity.host_ports(pod):
        service = _SERVICES.get(port)
        if service and service not in own and protocol == "TCP":
            message = (
                f"port {port}/{protocol} of the node belongs to {service}: the container cannot "
                f"listen on nodes that run it; use another port"
            )
            yield Violation((*POD, "containers"), message)
