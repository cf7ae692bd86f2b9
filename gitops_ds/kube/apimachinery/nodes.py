"""Nodes, parsed from bodies of the API server."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from gitops_ds.core.live import Node, Taint
from gitops_ds.core.objects import Body
from gitops_ds.kube.apimachinery import timestamps

# https://kubernetes.io/docs/reference/node/node-status/#condition
_TROUBLES = frozenset({"DiskPressure", "MemoryPressure", "PIDPressure", "NetworkUnavailable"})


def node_of(body: Body) -> Node:
    """The node; one without conditions counts as not ready."""
    metadata, spec, status = (
        body.get("metadata") or {},
        body.get("spec") or {},
        body.get("status") or {},
    )
    taints = (
        Taint(str(t.get("key", "")), str(t.get("effect", "")), str(t.get("value") or ""))
        for t in spec.get("taints") or ()
    )
    conditions = status.get("conditions") or ()
    return Node(
        name=str(metadata.get("name") or ""),
        labels=metadata.get("labels") or {},
        taints=tuple(taints),
        ready=any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions),
        unschedulable=bool(spec.get("unschedulable")),
        created=timestamps.seconds(str(metadata.get("creationTimestamp") or "")) or 0.0,
        deleting=metadata.get("deletionTimestamp") is not None,
        troubles=tuple(
            str(c["type"])
            for c in conditions
            if c.get("type") in _TROUBLES and c.get("status") == "True"
        ),
        conditions=tuple(
            sys.intern(str(c.get("type") or "")) for c in conditions if c.get("status") == "True"
        ),
        ready_since=_ready_since(conditions),
        boot_id=str((status.get("nodeInfo") or {}).get("bootID") or ""),
        uid=str(metadata.get("uid") or ""),
    )


def _ready_since(conditions: Iterable[Body]) -> float:
    text = next((c.get("lastTransitionTime") for c in conditions if c.get("type") == "Ready"), "")
    return timestamps.seconds(str(text or "")) or 0.0
