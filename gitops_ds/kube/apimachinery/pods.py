"""Pods, parsed from bodies of the API server: node, owner, state.

There can be a hundred thousand pods, and those of one owner have most values in common, which are
stored once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from gitops_ds.core import names
from gitops_ds.core.daemonset import Owner, Phase, Pod
from gitops_ds.core.objects import DAEMONSET, Body
from gitops_ds.kube.apimachinery import pod_cause, pod_contents, timestamps
from gitops_ds.kube.apimachinery.pod_cause import StatusCause

_PHASES = {str(phase): phase for phase in Phase}
_NO_CAUSE = StatusCause()


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
    ready, since = _condition(conditions, "Ready")
    scheduled, placed = _condition(conditions, "PodScheduled")
    states = pod_cause.statuses(status)
    ends = pod_cause.last_ends(states)
    is_well = ready and not ends and status.get("phase") == "Running"
    cause = _NO_CAUSE if is_well else pod_cause.read(spec, status)
    bound = str(spec.get("nodeName") or "")
    placed = placed or 0.0 if scheduled else 0.0
    owner = controller_of(metadata)
    return Pod(
        namespace=sys.intern(str(metadata.get("namespace") or "")),
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        version=str(metadata.get("resourceVersion") or ""),
        node=sys.intern(bound or target(spec)),
        bound=bool(bound),
        labels=labels,
        owner=owner,
        phase=_PHASES.get(status.get("phase") or "Pending") or Phase.UNKNOWN,
        terminating=metadata.get("deletionTimestamp") is not None,
        created=timestamps.seconds(str(metadata.get("creationTimestamp") or "")) or 0.0,
        ready=ready,
        ready_since=since,
        hash=labels.get(names.REVISION_HASH, ""),
        template_generation=labels.get(names.POD_TEMPLATE_GENERATION, ""),
        trouble=cause.trouble,
        reason=cause.reason,
        message=cause.message,
        crashed_at=None if ready else pod_cause.crashed_at(ends),
        crash=pod_cause.crash(ends),
        restarts=sum([int(state.get("restartCount") or 0) for state in states]),
        settles_at=pod_cause.settles_at(states) if ends else 0.0,
        last_run=pod_cause.last_run(ends),
        last_end=pod_cause.last_end(ends),
        gated=any(
            gate.get("name") == names.SCHEDULING_GATE for gate in spec.get("schedulingGates") or ()
        ),
        content=pod_contents.of_pod(spec) if is_of_daemonset(owner) else None,
        placed=placed,
        changed=_is_changed(metadata),
        **_pinned(body, conditions, states, placed if bound else None),
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


def _is_changed(metadata: Body) -> bool:
    """Whether the spec was changed after the creation. A binding does not count, and a deletion
    counts once (pkg/registry/core/pod/strategy.go, apiserver pkg/registry/rest/delete.go).
    """
    deleted = metadata.get("deletionTimestamp") is not None
    return int(metadata.get("generation") or 1) - deleted > 1


def is_of_daemonset(owner: Owner | None) -> bool:
    """Whether the controller of a pod is a DaemonSet."""
    return owner is not None and owner.kind == DAEMONSET.kind


def _pinned(
    body: Body, conditions: Sequence[Body], states: Sequence[Body], placed: float | None
) -> dict[str, Any]:
    """The fields of a pinned pod, bound at `placed` (None: not yet); none for any other, as nearly
    every pod.
    """
    metadata = body.get("metadata") or {}
    annotations = metadata.get("annotations")
    if not annotations and names.ROLLOUT not in (metadata.get("labels") or {}):
        return {}
    annotations = annotations or {}
    prepared, since = _condition(conditions, "PodReadyToStartContainers")
    return {
        "released": timestamps.seconds(str(annotations.get(names.RELEASED) or "")) or 0.0
        if placed is None
        else placed,
        "boot_id": sys.intern(str(annotations.get(names.BOOT_ID) or "")),
        "heals": annotations.get(names.HEALS) == "true",
        "launched": pod_cause.launched_at(states),
        "nominated": _is_nominated(body.get("spec") or {}, body.get("status") or {}),
        "unprepared": since is not None and not prepared,
    }


def _is_nominated(spec: Body, status: Body) -> bool:
    node = str(status.get("nominatedNodeName") or "")
    return bool(node) and node == target(spec)


def _condition(conditions: Sequence[Body], type: str) -> tuple[bool, float | None]:
    """Whether a condition is true, and its last change; None without it."""
    for condition in conditions:
        if condition.get("type") == type:
            return condition.get("status") == "True", timestamps.seconds(
                str(condition.get("lastTransitionTime") or "")
            )
    return False, None
