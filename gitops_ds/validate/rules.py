"""The table of rules: a new rule is one small function in a module of its family, and one row here.

For now it holds what an API server refuses and a schema can't see.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gitops_ds.model.objects import Body, Path
from gitops_ds.validate import bindings, naming, pod_rules, workloads
from gitops_ds.validate.rule import Rule, refused

RULES: Final[tuple[Rule, ...]] = (
    refused("DS005", "service accounts among subjects have a namespace", bindings.accounts_have_a_namespace),
    refused("DS006", "ports from 1 to 65535", pod_rules.port_numbers),
    refused("DS010", "quantities can be read", pod_rules.amounts),
    refused("DS011", "names, labels and annotations can be kept", naming.names),
    refused("DS101", "the selector matches the pod template", workloads.selector_matches),
    refused("DS102", "the selector is not empty", workloads.selector_is_said),
    refused("DS201", "maxUnavailable and maxSurge are not both 0", workloads.rollout_moves),
    refused("DS202", "maxSurge comes with maxUnavailable 0", workloads.one_budget),
    refused("DS204", "rollout numbers are counts or per cent", workloads.rollout_numbers),
    refused("DS304", "tolerations can be meant", pod_rules.tolerations),
    refused("DS403", "requests keep within limits", pod_rules.requests_within_limits),
    refused("DS414", "containers have names of their own", pod_rules.one_name),
    refused("DS415", "mounts have a volume, volumes have one source", pod_rules.volumes),
    refused("DS418", "pods that are kept running restart always", workloads.always_restarts),
    refused("DS419", "no deadline for pods that are kept running", workloads.no_deadline),
    refused("DS515", "hostPort is the container's port on the host's network", pod_rules.host_ports),
)


def check(body: Body) -> Iterator[tuple[Rule, Path, str]]:
    """What every rule has against a body that its schema has passed."""
    for rule in RULES:
        for path, message in rule.check(body):
            yield rule, path, message
