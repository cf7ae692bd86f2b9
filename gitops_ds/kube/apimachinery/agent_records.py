"""The record of a required agent, from its manifest."""

from __future__ import annotations

from typing import Any

from gitops_ds.core import names
from gitops_ds.core.objects import Body, annotations_of
from gitops_ds.core.required_agents import MOST_CONTENTS, AgentRecord
from gitops_ds.kube.apimachinery import pod_contents

# What `node_eligibility.read` reads of the spec of a template.
_PLACEMENT = ("nodeName", "nodeSelector", "tolerations", "hostNetwork")


def of_manifest(
    body: Body, *, staged: bool = False, before: AgentRecord | None = None
) -> AgentRecord:
    """The record of a DaemonSet that Git requires; `before` is an earlier one, whose templates it
    keeps.
    """
    spec = body.get("spec") or {}
    template = spec.get("template") or {}
    earlier = before.contents if before is not None else ()
    contents = dict.fromkeys((pod_contents.of_template(template), *earlier))
    return AgentRecord(
        {"spec": placement(template.get("spec") or {})},
        tuple(contents)[:MOST_CONTENTS],
        spec.get("minReadySeconds") or 0,
        suspended=str(annotations_of(body).get(names.SUSPEND) or "").lower() == "true",
        staged=staged,
    )


def placement(pod_spec: Body) -> dict[str, Any]:
    """The fields of a pod's spec that select nodes."""
    chosen = {name: pod_spec[name] for name in _PLACEMENT if pod_spec.get(name)}
    by_node = (pod_spec.get("affinity") or {}).get("nodeAffinity")
    return chosen | ({"affinity": {"nodeAffinity": by_node}} if by_node else {})
