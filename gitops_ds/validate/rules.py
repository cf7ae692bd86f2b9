"""The table of rules: a new rule is one small function in a module of its family, and one row here.

For now it holds what an API server refuses and a schema can't see.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gitops_ds.model.finding import Fix, Severity
from gitops_ds.model.objects import Body, Path
from gitops_ds.validate import bindings, naming, pod_rules, workloads
from gitops_ds.validate.rule import Rule, advice, class_of, refused

CRASHED: Final = advice("DS904", Severity.ERROR, "every rule comes to its end", lambda _: ())

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


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule has against an object: how loud, where, a sentence, and how to mend it."""

    rule: Rule
    severity: Severity
    path: Path
    message: str
    fix: Fix | None = None


def check(body: Body, profile: str = "") -> Iterator[Hit]:
    """What every rule that is on has against a body that its schema has passed.

    A rule that fails is no silence: it is told as DS904.
    """
    agent_class = class_of(body)
    for rule in RULES:
        if not rule.on:
            continue
        try:
            for found in rule.check(body):
                yield Hit(rule, rule.severity_for(agent_class, profile), *found)
        except Exception as error:  # a rule is a guest here: one that fails must not take the others with it
            yield Hit(CRASHED, Severity.ERROR, (), f"the rule {rule.id} failed on this object: {error!r}; please report it")
