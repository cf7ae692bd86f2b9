"""PriorityClasses of agents: DS313 whether they exist, DS316 whether they delay an agent.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gitops_ds.checks.advice.scheduling import SYSTEM_PRIORITIES
from gitops_ds.checks.engine import phrases
from gitops_ds.checks.engine.cluster_context import ClusterContext, pod_spec
from gitops_ds.checks.engine.rule import POD, Violation
from gitops_ds.model.objects import Body, Key, Path

_PATH: Final[Path] = (*POD, "priorityClassName")


def _own(fleet: ClusterContext) -> Mapping[str, tuple[Key, Body]]:
    """The PriorityClasses of the repository, by name."""
    keys = (
        key
        for key in fleet.manifests
        if (key.group, key.kind) == ("scheduling.k8s.io", "PriorityClass")
    )
    return {key.name: (key, fleet.manifests[key].body) for key in keys}


def known(fleet: ClusterContext) -> Iterator[Violation]:
    """DS313: the PriorityClass does not exist. The API server accepts the DaemonSet and rejects its
    pods.

    Names with the prefix `system-` are reserved by Kubernetes. Other names are checked if the
    classes of the cluster were read, or if the repository defines any; otherwise they are assumed
    to exist.
    """
    own, live = _own(fleet), fleet.priorities
    there = SYSTEM_PRIORITIES.union(own, live)
    for manifest in fleet.daemonsets:
        name = str(pod_spec(manifest).get("priorityClassName") or "")
        if not name or name in there or not (own or live or name.startswith("system-")):
            continue
        whose = (
            "Kubernetes has"
            if name.startswith("system-")
            else "cluster and repository have"
            if live
            else "the repository has"
        )
        choice = SYSTEM_PRIORITIES if name.startswith("system-") else {*own, *live}
        hint = phrases.did_you_mean(name, choice) or f": {whose} {phrases.one_of(sorted(choice))}"
        yield Violation(
            _PATH,
            f"PriorityClass {name} not found{hint}; without it no pod can be created",
            object=manifest.key,
        )


def held_back(fleet: ClusterContext) -> Iterator[Violation]:
    """DS316: an agent has a lower priority than pods without a class, or cannot preempt."""
    own = _own(fleet)
    for manifest in fleet.daemonsets:
        name = str(pod_spec(manifest).get("priorityClassName") or "")
        key, body = own.get(name) or (None, fleet.priorities.get(name))
        if body is None:
            continue
        value = body.get("value")
        problems = []
        if isinstance(value, int) and value < 0:
            problems.append(
                f"has the value {value}: pods without a class are scheduled first, and preempt "
                f"this agent"
            )
        if body.get("preemptionPolicy") == "Never":
            problems.append("never preempts: on a full node the agent stays Pending")
        if problems:
            message = f"the PriorityClass {name} {'; it '.join(problems)}"
            yield (
                Violation(_PATH, message, object=manifest.key, related=key)
                if key
                else Violation(_PATH, message, object=manifest.key)
            )
