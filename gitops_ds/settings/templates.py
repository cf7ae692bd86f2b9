"""The settings of templates that are kept in the cluster, and of what may be named at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops_ds.deployer.template_object import Chosen
from gitops_ds.model.objects import CONFIG_MAP, SECRET
from gitops_ds.plan.allow_list import AllowList

_KINDS = {resource.kind: resource for resource in (CONFIG_MAP, SECRET)}


def parse(told: Mapping[str, Any]) -> Chosen:
    """The group `templates`; where the service lives, and its cluster's name, is filled in by who
    puts it together.
    """
    plain = Chosen()
    return Chosen(
        selector=told.get("selector") or plain.selector,
        namespaces=tuple(told.get("namespaces") or ()),
        kinds=tuple(_KINDS[kind] for kind in told.get("kinds") or _KINDS),
        anywhere=bool(told.get("anywhere")),
    )


def allowed(told: Mapping[str, Any]) -> AllowList:
    """The group `apply.allow`; an empty list allows nothing."""
    return AllowList(
        namespaces=frozenset(told["namespaces"]) if "namespaces" in told else None,
        kinds=frozenset(told["kinds"]) if "kinds" in told else None,
        cluster_scoped=bool(told.get("clusterScoped", True)),
        itself=bool(told.get("itself")),
    )
