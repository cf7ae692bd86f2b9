"""Label and field selectors of lists and watches.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#api
https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gitops_ds.core.cluster import Selection
from gitops_ds.core.objects import Body, Resource
from gitops_ds.core.sources.bundle import Requirement
from gitops_ds.kube.apimachinery import label_selector
from gitops_ds.testing.simulator import api_errors

Test = Callable[[Body], bool]

_COMMON = {"metadata.name": ("metadata", "name"), "metadata.namespace": ("metadata", "namespace")}
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_FIELDS: Mapping[tuple[str, str], Mapping[str, tuple[str, ...]]] = {
    ("", "Pod"): {
        "spec.nodeName": ("spec", "nodeName"),
        "spec.restartPolicy": ("spec", "restartPolicy"),
        "spec.schedulerName": ("spec", "schedulerName"),
        "spec.serviceAccountName": ("spec", "serviceAccountName"),
        "spec.hostNetwork": ("spec", "hostNetwork"),
        "status.phase": ("status", "phase"),
        "status.podIP": ("status", "podIP"),
        "status.nominatedNodeName": ("status", "nominatedNodeName"),
    },
    ("", "Node"): {"spec.unschedulable": ("spec", "unschedulable")},
    ("", "Namespace"): {"status.phase": ("status", "phase")},
    ("", "Secret"): {"type": ("type",)},
    ("", "Event"): {
        **{f"involvedObject.{name}": ("involvedObject", name) for name in _INVOLVED},
        "reason": ("reason",),
        "type": ("type",),
        "reportingComponent": ("reportingComponent",),
        "source": ("source", "component"),
    },
}

_FLAGS = ("unschedulable", "hostNetwork")


def test(resource: Resource, which: Selection) -> Test:
    """A test whether an object of the kind matches. Raises Invalid for an invalid selector."""
    labels, fields = _labels(which.labels), _fields(resource, which.fields)

    def matches(body: Body) -> bool:
        metadata = body["metadata"]
        if which.namespace and metadata.get("namespace", "") != which.namespace:
            return False
        own_labels = metadata.get("labels") or {}
        return label_selector.all_match(labels, own_labels) and all(field(body) for field in fields)

    return matches


def _labels(selector: str) -> tuple[Requirement, ...]:
    try:
        return label_selector.parse(selector)
    except ValueError as wrong:
        raise api_errors.bad_request(f"unable to parse requirement: {wrong}") from None


def _fields(resource: Resource, selector: str) -> list[Test]:
    paths = {**_COMMON, **_FIELDS.get((resource.group, resource.kind), {})}
    tests: list[Test] = []
    for part in filter(None, (p.strip() for p in selector.split(","))):
        match = re.match(r"^([^=!]+)(!=|==|=)(.*)$", part)
        if not match:
            raise api_errors.bad_request(
                f"invalid selector: '{selector}'; can't understand '{part}'"
            )
        name, sign, value = match.groups()
        if name not in paths:
            names = ", ".join(f'"{n}"' for n in paths)
            raise api_errors.bad_request(f'"{name}" is not a known field selector: only {names}')
        tests.append(_field(paths[name], value, sign == "!="))
    return tests


def _field(path: tuple[str, ...], expected: str, differs: bool) -> Test:
    def matches(body: Body) -> bool:
        value: Any = body
        for step in path:
            value = (value or {}).get(step)
        if isinstance(value, bool) or (value is None and path[-1] in _FLAGS):
            text = "true" if value else "false"
        else:
            text = "" if value is None else str(value)
        return (text == expected) != differs

    return matches
