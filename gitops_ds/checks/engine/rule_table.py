"""The table of rules over one object, from the modules that declare them.

Rules over a cluster, a change or a repository have their own tables; catalogue.py joins all tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gitops_ds.checks.admission import (
    all_kinds,
    object_names,
    pod_resources,
    resources,
    startup_taints,
    workloads,
)
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
from gitops_ds.checks.engine.rule import Looked, ObjectRule, Switch, Violation, class_of, rules_in
from gitops_ds.core.finding import RuleDefinition, Severity, advice
from gitops_ds.core.objects import Body

CRASHED: Final = advice("DS904", Severity.ERROR, "rule failed")

_MODULES: Final = (
    *(all_kinds, object_names, pod_resources, resources, startup_taints, workloads),
    *(affinity, containers, host_access, identity, images, rollout, scheduling, security),
    *(unwanted_content, workload_kind),
)
RULES: Final[tuple[ObjectRule, ...]] = rules_in(*map(vars, _MODULES))


class Hit(msgspec.Struct, frozen=True):
    """A violation of an object, with the rule and the severity for the object's class."""

    rule: RuleDefinition
    severity: Severity
    violation: Violation


ON: Final = tuple(rule for rule in RULES if rule.on)


def enabled(switches: Mapping[str, Switch]) -> tuple[ObjectRule, ...]:
    """The rules that run with a repository's switches. Blocking rules cannot be disabled."""
    if not switches:
        return ON
    on = (rule for rule in RULES if (rule.on and rule.refused) or switches.get(rule.id, rule.on))
    return tuple(rule.by_settings(switches.get(rule.id)) for rule in on)


def check(body: Body, profile: str = "", rules: Iterable[ObjectRule] = ON) -> list[Hit]:
    """The violations of a body that its schema has accepted. A rule that raises is CRASHED."""
    return check_each([body], profile, rules)[0]


def check_each(
    bodies: Iterable[Body], profile: str = "", rules: Iterable[ObjectRule] = ON
) -> list[list[Hit]]:
    """`check` of each body. A rule checks all bodies before the next one: while its code is in the
    caches of the processor, it takes two thirds of the time.
    """
    looked = [(Looked(body), class_of(body), list[Hit]()) for body in bodies]
    for rule in rules:
        for body, agent_class, hits in looked:
            try:
                for violation in rule.check(body):
                    severity = rule.severity_for(agent_class, profile)
                    hits.append(Hit(rule, severity, violation))
            except MemoryError:  # not caused by the rule: the next one would fail as well
                raise
            except Exception as error:  # isolate rules from each other: the others must still run
                message = f"rule {rule.id} failed on this object: {error!r}; please report it"
                hits.append(Hit(CRASHED, Severity.ERROR, Violation((), message)))
    return [hits for _, _, hits in looked]
