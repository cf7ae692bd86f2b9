"""Pods, parsed from bodies of the API server: node, owner, state.

There can be a hundred thousand pods, and those of one owner have most values in common, which are
stored once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache

from gitops_ds.apimachinery import timestamps
from gitops_ds.model import names
from gitops_ds.model.daemonset import Owner, Phase, Pod
from gitops_ds.model.objects import Body

_PHASES = {str(phase): phase for phase in Phase}
_ON_ITS_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})


def pod_of(body: Body) -> Pod:
    """The pod, with only the fields that decisions and health need."""
    metadata, spec, status = (
        body.get("metadata") or {},
        body.get("spec") or {},
        body.get("status") or {},
    )
    labels = _labels(
        tuple(
            (str(name), str(value or "")) for name, value in (metadata.get("labels") or {}).items()
        )
    )
    conditions = status.get("conditions") or ()
    ready, since = _readiness(conditions)
    states = _container_states(status)
    trouble, message = _trouble(status, states, conditions)
    ends = _last_ends(states)
    bound = str(spec.get("nodeName") or "")
    return Pod(
        namespace=sys.intern(str(metadata.get("namespace") or "")),
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        version=str(metadata.get("resourceVersion") or ""),
        node=sys.intern(bound or target(spec)),
        bound=bool(bound),
        labels=labels,
        owner=controller_of(metadata),
        phase=_PHASES.get(status.get("phase") or "Pending") or Phase.UNKNOWN,
        terminating=metadata.get("deletionTimestamp") is not None,
        created=timestamps.seconds(str(metadata.get("creationTimestamp") or "")) or 0.0,
        ready=ready,
        ready_since=since,
        hash=labels.get(names.REVISION_HASH, ""),
        template_generation=labels.get(names.POD_TEMPLATE_GENERATION, ""),
        trouble=trouble,
        message=message,
        crashed_at=None if ready else _crashed_at(ends),
        crash=_crash(ends),
        restarts=sum([int(state.get("restartCount") or 0) for state in states]),
        gated=any(
            gate.get("name") == names.SCHEDULING_GATE for gate in spec.get("schedulingGates") or ()
        ),
        released=_released(metadata),
    )


_owner = lru_cache(8192)(Owner)


@lru_cache(8192)
def _labels(labels: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(labels)


def target(pod_spec: Body) -> str:
    """The single node in the required affinity, by `metadata.name`, else empty.

    The first such field of the first term with one counts, as in upstream's `GetTargetNodeName`.
    """
    required = ((pod_spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    for term in (required or {}).get("nodeSelectorTerms") or ():
        for entry in term.get("matchFields") or ():
            if entry.get("key") == "metadata.name" and entry.get("operator") == "In":
                values = list(entry.get("values") or ())
                return str(values[0]) if len(values) == 1 else ""
    return ""


def controller_of(metadata: Body) -> Owner | None:
    """The owner reference with `controller: true`, None for an orphan."""
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            return _owner(
                str(reference.get("kind", "")),
                str(reference.get("name", "")),
                str(reference.get("uid", "")),
            )
    return None


def _released(metadata: Body) -> float:
    text = (metadata.get("annotations") or {}).get(names.RELEASED)
    return timestamps.seconds(str(text)) or 0.0 if text else 0.0


def _readiness(conditions: Sequence[Body]) -> tuple[bool, float | None]:
    for condition in conditions:
        if condition.get("type") == "Ready":
            return condition.get("status") == "True", timestamps.seconds(
                str(condition.get("lastTransitionTime") or "")
            )
    return False, None


def _trouble(status: Body, states: Sequence[Body], conditions: Sequence[Body]) -> tuple[str, str]:
    for state in states:
        if waiting := (state.get("state") or {}).get("waiting"):
            reason = str(waiting.get("reason") or "")
            if reason not in _ON_ITS_WAY:
                return reason, str(waiting.get("message") or "")
    if status.get("phase") == "Failed":
        return str(status.get("reason") or "Failed"), str(status.get("message") or "")
    for condition in conditions:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("reason") or "Unschedulable"), str(
                condition.get("message") or ""
            )
    return "", ""


def crashed_at(status: Body) -> float | None:
    """When a container of a pod last ended with an error, also of a pod that is ready again."""
    return _crashed_at(_last_ends(_container_states(status)))


def _container_states(status: Body) -> Sequence[Body]:
    return [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]


def _last_ends(states: Sequence[Body]) -> Sequence[Body]:
    """Of the containers that ended before and were restarted."""
    return [end for state in states if (end := (state.get("lastState") or {}).get("terminated"))]


def _crashed_at(ends: Sequence[Body]) -> float | None:
    times = (
        timestamps.seconds(str(end.get("finishedAt") or "")) for end in ends if end.get("exitCode")
    )
    return max((time for time in times if time is not None), default=None)


def _crash(ends: Sequence[Body]) -> str:
    for end in ends:
        if end.get("exitCode") or end.get("reason") == "OOMKilled":
            return sys.intern(str(end.get("reason") or ""))
    return ""
