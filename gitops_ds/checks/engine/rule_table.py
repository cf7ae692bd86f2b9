"""The table of rules over one object. A new rule is a function in the module of its family, and a
row here.

Rules over a cluster, a change or a repository have their own tables; catalogue.py joins all tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from gitops_ds.checks.admission import all_kinds, object_names, pod_resources, resources, workloads
from gitops_ds.checks.advice import (
    affinity,
    containers,
    host_access,
    identity,
    images,
    rollout,
    scheduling,
    security,
    unwanted_content,
    workload_kind,
)
from gitops_ds.checks.cluster import startup_taints
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
from gitops_ds.core.finding import Severity
from gitops_ds.core.objects import Body

CRASHED: Final[ObjectRule] = advice("DS904", Severity.ERROR, "rule failed", no_violations)

_INFO, _WARNING = Severity.INFO, Severity.WARNING

RULES: Final[tuple[ObjectRule, ...]] = (
    refused("DS005", "required field is missing", all_kinds.missing),
    refused("DS006", "value is not allowed", all_kinds.values),
    refused("DS010", "quantity is invalid", pod_resources.amounts),
    refused("DS011", "name, label or annotation is invalid", object_names.names),
    advice("DS012", Severity.ERROR, "placeholder was not rendered", unwanted_content.filled_in),
    advice(
        "DS013",
        Severity.WARNING,
        "manifest has fields that the cluster writes",
        unwanted_content.only_what_is_wanted,
    ),
    advice("DS014", Severity.WARNING, "object is in the default namespace", identity.own_namespace),
    advice("DS015", Severity.INFO, "recommended labels are missing", identity.common_labels),
    refused("DS101", "selector must match template labels", workloads.selector_matches),
    refused("DS102", "selector is empty", workloads.selector_is_not_empty),
    advice("DS105", Severity.WARNING, "selector has labels that change", identity.lasting_selector),
    refused("DS201", "maxUnavailable and maxSurge are both 0", workloads.rollout_moves),
    refused("DS202", "maxSurge requires maxUnavailable 0", workloads.one_budget),
    advice("DS203", Severity.ERROR, "host ports conflict during a surge", rollout.surge_has_room),
    refused("DS204", "maxUnavailable or maxSurge is invalid", workloads.rollout_numbers),
    advice(
        "DS205",
        Severity.ERROR,
        "maxUnavailable covers too many nodes",
        rollout.few_at_a_time,
    ),
    advice("DS207", Severity.WARNING, "updateStrategy is OnDelete", rollout.rolls_by_itself),
    advice(
        "DS208",
        Severity.WARNING,
        "minReadySeconds is not set",
        rollout.waits_after_ready,
    ),
    advice(
        "DS209",
        Severity.ERROR,
        "no readiness check stops a bad rollout",
        rollout.something_stops_it,
    ),
    refused(
        "DS210", "preStop sleep exceeds the termination grace period", rollout.sleeps_end_in_time
    ),
    advice(
        "DS210",
        Severity.WARNING,
        "termination grace period is too short or too long",
        rollout.time_to_end,
    ),
    advice("DS211", Severity.WARNING, "revisionHistoryLimit is 0", rollout.way_back),
    advice(
        "DS212",
        Severity.WARNING,
        "readiness delay of each batch exceeds ten minutes",
        rollout.ends_in_time,
        on=False,
    ),
    advice(
        "DS301",
        Severity.WARNING,
        "control plane taint is not tolerated",
        scheduling.control_plane,
    ),
    advice("DS302", Severity.WARNING, "every taint is tolerated", scheduling.some_taints_hold),
    advice(
        "DS303",
        Severity.WARNING,
        "control plane label or taint is outdated",
        scheduling.new_role_name,
    ),
    refused("DS304", "toleration is invalid", pod_resources.tolerations),
    advice(
        "DS305",
        Severity.INFO,
        "toleration is redundant",
        scheduling.only_own_tolerations,
    ),
    refused("DS306", "node affinity is invalid", affinity.terms_can_be_meant),
    advice("DS306", Severity.WARNING, "node affinity matches no node", affinity.terms_can_be_met),
    advice(
        "DS308",
        Severity.WARNING,
        "node label is deprecated",
        scheduling.current_labels,
    ),
    advice(
        "DS310",
        Severity.WARNING,
        "pod affinity on a DaemonSet",
        scheduling.no_pod_affinity,
        on=False,
    ),
    advice(
        "DS311",
        Severity.INFO,
        "preferred node affinity has no effect",
        scheduling.no_wishes,
        on=False,
    ),
    advice("DS312", Severity.WARNING, "priorityClassName is not set", scheduling.priority),
    advice(
        "DS314",
        Severity.ERROR,
        "agent selects a single node",
        scheduling.no_single_node,
        on=False,
    ),
    advice(
        "DS315",
        Severity.WARNING,
        "serviceAccount is deprecated",
        scheduling.account_by_its_name,
    ),
    advice(
        "DS317",
        Severity.INFO,
        "required node label can exclude nodes",
        scheduling.hard_limits,
        on=False,
    ),
    advice("DS318", Severity.ERROR, "node name is matched as a label", affinity.names_are_fields),
    advice(
        "DS319",
        Severity.INFO,
        "container runs a periodic job",
        containers.periodic_work,
        on=False,
    ),
    advice(
        "DS320",
        Severity.WARNING,
        "schedulerName names another scheduler",
        scheduling.known_scheduler,
        on=False,
    ),
    advice(
        "DS321",
        Severity.INFO,
        "program is required before any pod",
        workload_kind.needed_before_pods,
    ),
    advice(
        "DS322",
        Severity.INFO,
        "pod prepares its node once",
        workload_kind.one_time_work,
        on=False,
    ),
    set_up(
        refused(
            "DS323",
            "required agent does not tolerate the startup taint",
            startup_taints.required_agents_tolerate,
        ),
        startup_taints.of_settings,
    ),
    advice(
        "DS401", Severity.WARNING, "container has no CPU or memory request", containers.requests
    ),
    advice("DS402", Severity.WARNING, "container has no memory limit", containers.memory_limits),
    refused("DS403", "request exceeds its limit", resources.requests_within_limits),
    advice(
        "DS404",
        Severity.INFO,
        "container has a CPU limit",
        containers.no_cpu_limit,
        on=False,
    ),
    advice("DS405", Severity.WARNING, "no container has a readiness probe", containers.readiness),
    advice("DS406", Severity.INFO, "liveness probe is missing", containers.liveness, on=False),
    advice(
        "DS407",
        Severity.WARNING,
        "liveness probe fails as early as the readiness probe",
        containers.probes_differ,
        on=False,
    ),
    certain("DS408", "probe port name not found", containers.named_ports),
    advice("DS408", Severity.INFO, "probe port is not declared", containers.numbered_ports),
    refused("DS409", "successThreshold of a liveness probe must be 1", containers.one_success),
    advice(
        "DS409",
        Severity.WARNING,
        "probe timeout exceeds its period",
        containers.timeouts_within_periods,
        on=False,
    ),
    advice("DS410", Severity.ERROR, "image has no version", images.one_version),
    advice("DS411", Severity.INFO, "image has no digest", images.by_digest, on=False),
    advice(
        "DS412",
        Severity.INFO,
        "imagePullPolicy is Always for an immutable image",
        images.pulled_once,
        on=False,
    ),
    set_up(
        advice(
            "DS413",
            Severity.WARNING,
            "image registry is not allowed",
            images.named_registry,
            on=False,
        ),
        images.from_registries,
    ),
    refused("DS414", "duplicate name, port or mount path", pod_resources.once),
    refused(
        "DS415", "mount without a volume, or volume with several sources", pod_resources.volumes
    ),
    advice("DS415", Severity.INFO, "volume is not mounted", containers.used_volumes),
    refused("DS418", "restartPolicy must be Always", workloads.always_restarts),
    refused("DS419", "activeDeadlineSeconds is not allowed", workloads.no_deadline),
    advice(
        "DS420",
        Severity.WARNING,
        "emptyDir in memory has no sizeLimit",
        containers.bounded_memory_volumes,
        on=False,
    ),
    # Agents of these classes require access to the node; for others privileges are an error.
    advice(
        "DS501",
        Severity.ERROR,
        "container is privileged",
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
        "hostNetwork is set",
        host_access.host_network,
        cni=_INFO,
        dns=_INFO,
    ),
    advice(
        "DS503",
        Severity.WARNING,
        "dnsPolicy ignores the cluster DNS on the host network",
        host_access.cluster_names,
        cni=_INFO,
        dns=_INFO,
    ),
    advice("DS504", Severity.WARNING, "hostPID is set", host_access.host_processes),
    advice("DS504", Severity.ERROR, "hostIPC is set", host_access.host_ipc),
    advice(
        "DS505",
        Severity.ERROR,
        "sensitive host path is mounted",
        host_access.sensitive_paths,
        cni=_WARNING,
        csi=_WARNING,
        monitoring=_WARNING,
        logging=_WARNING,
        security=_WARNING,
        gpu=_WARNING,
    ),
    advice("DS506", Severity.WARNING, "host path is writable", host_access.writable_paths),
    advice("DS507", Severity.INFO, "hostPath has no type", host_access.typed_paths),
    advice(
        "DS508",
        Severity.WARNING,
        "privilege escalation is allowed",
        security.no_escalation,
        on=False,
    ),
    advice("DS509", Severity.INFO, "container may run as root", security.no_root, on=False),
    advice(
        "DS510",
        Severity.INFO,
        "root file system is writable",
        security.read_only_root,
        on=False,
    ),
    advice(
        "DS511",
        Severity.WARNING,
        "dangerous capability is added",
        security.few_capabilities,
        on=False,
    ),
    advice(
        "DS511",
        Severity.INFO,
        "capabilities are not dropped",
        security.dropped_capabilities,
        on=False,
    ),
    advice("DS512", Severity.INFO, "seccomp profile is not set", security.seccomp, on=False),
    advice("DS513", Severity.INFO, "service account token is mounted", security.no_token, on=False),
    advice("DS514", Severity.ERROR, "secret in plain text", unwanted_content.no_secrets),
    advice(
        "DS609",
        Severity.WARNING,
        "host port belongs to a service of the node",
        host_access.free_of_services,
        on=False,
    ),
    refused(
        "DS515", "hostPort must equal containerPort with hostNetwork", pod_resources.host_ports
    ),
)


class Hit(msgspec.Struct, frozen=True):
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
        except MemoryError:  # not caused by the rule: the next one would fail as well
            raise
        except Exception as error:  # isolate rules from each other: the others must still run
            message = f"rule {rule.id} failed on this object: {error!r}; please report it"
            yield Hit(CRASHED, Severity.ERROR, Violation((), message))
