"""Label and field selectors of lists and watches.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#api
https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gitops_ds.model.cluster import Selection
from gitops_ds.model.objects import Body, Resource
from gitops_ds.simulator import api_errors

Test = Callable[[Body], bool]
_LabelTest = Callable[[Mapping[str, str]], bool]

_SET = re.compile(
    r"^(!?)\s*([^\s=!,()]+)\s*(?:(==|=|!=)\s*([^\s,()]*)|\s(in|notin)\s*\(([^()]*)\))?$"
)
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


def test(resource: Resource, which: Selection) -> Test:
    """A test whether an object of the kind matches. Raises Invalid for an invalid selector."""
    labels, fields = _labels(which.labels), _fields(resource, which.fields)

    def matches(body: Body) -> bool:
        metadata = body["metadata"]
        if which.namespace and metadata.get("namespace", "") != which.namespace:
            return False
        own_labels = metadata.get("labels") or {}
        return all(label(own_labels) for label in labels) and all(field(body) for field in fields)

    return matches


def _labels(selector: str) -> list[_LabelTest]:
    return [_label(part) for part in _split(selector) if part]


def _split(selector: str) -> list[str]:
    """The requirements, split at commas outside of parentheses."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(selector):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(selector[start:at].strip())
            start = at + 1
    if depth != 0:
        raise api_errors.bad_request("unable to parse requirement: found '', expected: ',' or ')'")
    return [*parts, selector[start:].strip()]


def _label(part: str) -> _LabelTest:
    match = _SET.match(part)
    if not match or (match[1] and (match[3] or match[5])):
        raise api_errors.bad_request(
            f"unable to parse requirement: {part!r} is not a label requirement"
        )
    negated, key, sign, value, word, listed = match.groups()
    if sign == "!=":
        return lambda labels: labels.get(key) != value
    if sign:
        return lambda labels: labels.get(key) == value
    if word:
        values = {v.strip() for v in listed.split(",")}
        if word == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if negated:
        return lambda labels: key not in labels
    return lambda labels: key in labels


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
        text = (
            {None: "", True: "true", False: "false"}.get(value, value)
            if value is None or value is True or value is False
            else value
        )
        if isinstance(value, bool) or (
            value is None and path[-1] in ("unschedulable", "hostNetwork")
        ):
            text = "true" if value else "false"
        return (str(text) == expected) != differs

    return matches
