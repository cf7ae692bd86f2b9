"""The table of rules over one object: a new rule is one small function in a module of its family,
and one row here.

Rules over a fleet, a change or a repository have tables of their own (catalogue.py joins them all).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gitops_ds.checks.admission import all_kinds, pod_resources, resources, workloads
from gitops_ds.checks.advice import (
    affinity,
    containers,
    hardcoded_secrets,
    host_access,
    identity,
    images,
    node_ports,
    rollout,
    scheduling,
    security,
    unrendered_text,
)
from gitops_ds.checks.engine.rule import (
    Looked,
    ObjectRule,
    Switch,
    Violation,
    advice,
    certain,
    class_of,
    no_violations,
    refused,
    set_up,
)
from gitops_ds.model.finding import Severity
from gitops_ds.model.objects import Body

CRASHED: Final[ObjectRule] = advice(
    "DS904", Severity.ERROR, "every rule comes to its end", no_violations
)

_INFO, _WARNING = Severity.INFO, Severity.WARNING

RULES: Final[tuple[ObjectRule, ...]] = (
    refused("DS005", "what is required is there", all_kinds.missing),
    refused("DS006", "values are among those that are allowed", all_kinds.values),
    refused("DS010", "quantities can be read", pod_resources.amounts),
    refused("DS011", "names, labels and annotations can be kept", all_kinds.names),
    advice(
        "DS012", Severity.ERROR, "every place of a template is filled in", unrendered_text.filled_in
    ),
    advice(
        "DS013",
        Severity.WARNING,
        "only what is wanted, nothing that the cluster writes",
        unrendered_text.only_what_is_wanted,
    ),
    advice(
        "DS014", Severity.WARNING, "objects lie in a namespace of their own", identity.own_namespace
    ),
    advice("DS015", Severity.INFO, "agents have the recommended labels", identity.common_labels),
    refused("DS101", "the selector matches the pod template", workloads.selector_matches),
    refused("DS102", "the selector is not empty", workloads.selector_is_said),
    advice(
        "DS105", Severity.WARNING, "the selector holds on to what stays", identity.lasting_selector
    ),
    refused("DS201", "maxUnavailable and maxSurge are not both 0", workloads.rollout_moves),
    refused("DS202", "maxSurge comes with maxUnavailable 0", workloads.one_budget),
    advice("DS203", Severity.ERROR, "a surge has the ports it needs", rollout.surge_has_room),
    refused("DS204", "rollout numbers are counts or per cent", workloads.rollout_numbers),
    advice(
        "DS205",
        Severity.ERROR,
        "only a part of the nodes is updated at once",
        rollout.few_at_a_time,
    ),
    advice(
        "DS207", Severity.WARNING, "a change reaches the nodes by itself", rollout.rolls_by_itself
    ),
    advice(
        "DS208",
        Severity.WARNING,
        "a pod is ready for some seconds before it counts",
        rollout.waits_after_ready,
    ),
    advice("DS209", Severity.ERROR, "something stops a bad rollout", rollout.something_stops_it),
    refused("DS210", "a hook's sleep fits into the time to end", rollout.sleeps_end_in_time),
    advice(
        "DS210", Severity.WARNING, "pods have time to end, but not minutes", rollout.time_to_end
    ),
    advice("DS211", Severity.WARNING, "there is a revision to go back to", rollout.way_back),
    advice(
        "DS212", Severity.WARNING, "a rollout can end in its time", rollout.ends_in_time, on=False
    ),
    advice(
        "DS301",
        Severity.WARNING,
        "agents for every node run on the control plane too",
        scheduling.control_plane,
    ),
    advice(
        "DS302", Severity.WARNING, "some taints keep an agent away", scheduling.some_taints_hold
    ),
    advice(
        "DS303", Severity.WARNING, "the control plane by the name it has", scheduling.new_role_name
    ),
    refused("DS304", "tolerations can be meant", pod_resources.tolerations),
    advice(
        "DS305",
        Severity.INFO,
        "no toleration that the controller adds",
        scheduling.only_own_tolerations,
    ),
    refused("DS306", "node affinity can be meant", affinity.terms_can_be_meant),
    advice("DS306", Severity.WARNING, "node affinity can be met", affinity.terms_can_be_met),
    advice(
        "DS308",
        Severity.WARNING,
        "labels of nodes by the names that stay",
        scheduling.current_labels,
    ),
    advice(
        "DS310", Severity.WARNING, "no conditions among pods", scheduling.no_pod_affinity, on=False
    ),
    advice(
        "DS311", Severity.INFO, "what is meant of nodes is required", scheduling.no_wishes, on=False
    ),
    advice("DS312", Severity.WARNING, "agents have a priority", scheduling.priority),
    advice(
        "DS314",
        Severity.ERROR,
        "an agent is not for a single node",
        scheduling.no_single_node,
        on=False,
    ),
    advice(
        "DS315",
        Severity.WARNING,
        "the service account by its name's field",
        scheduling.account_by_its_name,
    ),
    advice(
        "DS317",
        Severity.INFO,
        "an agent requires only what it can't do without",
        scheduling.hard_limits,
        on=False,
    ),
    advice(
        "DS318", Severity.ERROR, "names of nodes are matched as a field", affinity.names_are_fields
    ),
    advice(
        "DS319",
        Severity.INFO,
        "work that comes at times is no agent's",
        containers.periodic_work,
        on=False,
    ),
    advice(
        "DS320",
        Severity.WARNING,
        "the scheduler is the one that is there",
        scheduling.known_scheduler,
        on=False,
    ),
    advice("DS401", Severity.WARNING, "containers ask for CPU and memory", containers.requests),
    advice("DS402", Severity.WARNING, "containers have a memory limit", containers.memory_limits),
    refused("DS403", "requests keep within limits", resources.requests_within_limits),
    advice(
        "DS404",
        Severity.INFO,
        "no CPU limit for what others wait for",
        containers.no_cpu_limit,
        on=False,
    ),
    advice("DS405", Severity.WARNING, "agents tell when they are ready", containers.readiness),
    advice("DS406", Severity.INFO, "what hangs is started again", containers.liveness, on=False),
    advice(
        "DS407",
        Severity.WARNING,
        "liveness waits longer than readiness",
        containers.probes_differ,
        on=False,
    ),
    certain("DS408", "probes ask ports that have the name", containers.named_ports),
    advice("DS408", Severity.INFO, "probes ask ports that are declared", containers.numbered_ports),
    refused("DS409", "liveness asks for one success", containers.one_success),
    advice(
        "DS409",
        Severity.WARNING,
        "probes end within their period",
        containers.timeouts_within_periods,
        on=False,
    ),
    advice("DS410", Severity.ERROR, "images name their version", images.one_version),
    advice("DS411", Severity.INFO, "images name their digest", images.by_digest, on=False),
    advice(
        "DS412",
        Severity.INFO,
        "images that can't change are pulled once",
        images.pulled_once,
        on=False,
    ),
    set_up(
        advice(
            "DS413",
            Severity.WARNING,
            "images come from registries that are known",
            images.named_registry,
            on=False,
        ),
        images.from_registries,
    ),
    refused("DS414", "names, ports and places are there once", pod_resources.once),
    refused("DS415", "mounts have a volume, volumes have one source", pod_resources.volumes),
    advice("DS415", Severity.INFO, "volumes are mounted", containers.used_volumes),
    refused("DS418", "pods that are kept running restart always", workloads.always_restarts),
    refused("DS419", "no deadline for pods that are kept running", workloads.no_deadline),
    advice(
        "DS420",
        Severity.WARNING,
        "volumes in memory have a bound",
        containers.bounded_memory_volumes,
        on=False,
    ),
    # Agents of these classes can't do their work without the node; privileges are an error for the
    # others.
    advice(
        "DS501",
        Severity.ERROR,
        "no container is privileged",
        security.privileged,
        cni=_WARNING,
        csi=_WARNING,
        monitoring=_WARNING,
        security=_WARNING,
        gpu=_WARNING,
    ),
    advice(
        "DS502",
        Severity.WARNING,
        "pods have a network of their own",
        host_access.host_network,
        cni=_INFO,
        dns=_INFO,
    ),
    advice(
        "DS503",
        Severity.WARNING,
        "pods know the cluster's names",
        host_access.cluster_names,
        cni=_INFO,
        dns=_INFO,
    ),
    advice("DS504", Severity.WARNING, "pods see their own processes", host_access.host_processes),
    advice("DS504", Severity.ERROR, "pods see their own shared memory", host_access.host_ipc),
    advice(
        "DS505",
        Severity.ERROR,
        "no sensitive paths of the host",
        host_access.sensitive_paths,
        cni=_WARNING,
        csi=_WARNING,
        monitoring=_WARNING,
        logging=_WARNING,
        security=_WARNING,
        gpu=_WARNING,
    ),
    advice(
        "DS506", Severity.WARNING, "paths of the host are only read", host_access.writable_paths
    ),
    advice("DS507", Severity.INFO, "paths of the host have a type", host_access.typed_paths),
    advice(
        "DS508",
        Severity.WARNING,
        "nobody gets more rights than the container",
        security.no_escalation,
        on=False,
    ),
    advice(
        "DS509", Severity.INFO, "it is said who a container runs as", security.no_root, on=False
    ),
    advice(
        "DS510",
        Severity.INFO,
        "containers can't change themselves",
        security.read_only_root,
        on=False,
    ),
    advice(
        "DS511",
        Severity.WARNING,
        "no capabilities close to root",
        security.few_capabilities,
        on=False,
    ),
    advice(
        "DS511", Severity.INFO, "capabilities are dropped", security.dropped_capabilities, on=False
    ),
    advice("DS512", Severity.INFO, "system calls are filtered", security.seccomp, on=False),
    advice("DS513", Severity.INFO, "no token that nobody needs", security.no_token, on=False),
    advice("DS514", Severity.ERROR, "no secrets written out", hardcoded_secrets.no_secrets),
    advice(
        "DS609",
        Severity.WARNING,
        "ports of a node's services are left to them",
        node_ports.free_of_services,
        on=False,
    ),
    refused(
        "DS515", "hostPort is the container's port on the host's network", pod_resources.host_ports
    ),
)


@dataclass(frozen=True, slots=True)
class Hit:
    """A violation of an object, with the rule and the severity for the object's class."""

    rule: ObjectRule
    severity: Severity
    violation: Violation


ON: Final = tuple(rule for rule in RULES if rule.on)


def enabled(switches: Mapping[str, Switch]) -> tuple[ObjectRule, ...]:
    """The rules that run with a repository's switches. Blocking rules cannot be disabled."""
    if not switches:
        return ON
    on = (rule for rule in RULES if (rule.on and rule.refused) or switches.get(rule.id, rule.on))
    return tuple(rule.by_settings(switches.get(rule.id)) for rule in on)


def check(body: Body, profile: str = "", rules: Iterable[ObjectRule] = ON) -> Iterator[Hit]:
    """The violations of a body that its schema has accepted. A rule that raises yields DS904."""
    agent_class = class_of(body)
    body = Looked(body)
    for rule in rules:
        try:
            for violation in rule.check(body):
                yield Hit(rule, rule.severity_for(agent_class, profile), violation)
        except MemoryError:  # not the rule's own fault: the next one would fail as well
            raise
        except Exception as error:  # isolate rules from each other: the others must still run
            message = f"rule {rule.id} failed on this object: {error!r}; please report it"
            yield Hit(CRASHED, Severity.ERROR, Violation((), message))
