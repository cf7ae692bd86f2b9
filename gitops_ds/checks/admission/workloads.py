"""Validation of workloads by the API server: selectors, rollout numbers, fields that their pods
must not set.

Source: ValidateDaemonSet, ValidateDeployment and similar functions in
pkg/apis/apps/validation/validation.go of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from gitops_ds.checks.engine.rule import Violation, at, pod_specs, rule, section
from gitops_ds.core.finding import Fix, Mend, refused
from gitops_ds.core.objects import Body, Path
from gitops_ds.kube.apimachinery import label_selector

_SELECTING: Final = frozenset({"DaemonSet", "Deployment", "StatefulSet", "ReplicaSet"})
_PERCENT: Final = re.compile(r"[0-9]+%\Z", re.ASCII)
_SELECTOR: Final[Path] = ("spec", "selector")
_LABELS: Final[Path] = ("spec", "template", "metadata", "labels")
_ROLLING: Final[Path] = ("spec", "updateStrategy", "rollingUpdate")
_UNAVAILABLE: Final[Path] = (*_ROLLING, "maxUnavailable")

_NAME: Final = "app.kubernetes.io/name"
# The labels that name an agent, by precedence.
_NAMING: Final = (_NAME, "k8s-app", "app", "name")


@rule(refused("DS101", "selector must match template labels"))
def selector_matches(body: Body) -> Iterator[Violation]:
    """The selector must match the labels of the template."""
    selector = section(at(body, _SELECTOR))
    if body.get("kind") not in _SELECTING or not _has_conditions(selector):
        return
    labels, match_labels = section(at(body, _LABELS)), section(selector.get("matchLabels"))
    for key, value in match_labels.items():
        if (labels.get(key) or "") != (value or "") or key not in labels:
            has = f'has "{labels[key]}"' if key in labels else "does not have it"
            message = f"the selector requires the label {key}: {value}; the pod template {has}"
            yield Violation((*_SELECTOR, "matchLabels", key), message, _labelled(key, value or ""))
    held = {key: str(value or "") for key, value in labels.items()}
    for index, entry in enumerate(selector.get("matchExpressions") or ()):
        requirement = label_selector.from_body(entry)
        if not label_selector.matches(requirement, held):
            path = (*_SELECTOR, "matchExpressions", index)
            message = "the labels of the pod template do not match this expression of the selector"
            if (
                requirement.operator == "In"
                and len(requirement.values) == 1
                and requirement.key not in match_labels
            ):
                yield Violation(path, message, _labelled(requirement.key, requirement.values[0]))
            else:
                yield Violation(path, message)


def _labelled(key: str, value: str) -> Fix:
    # The selector of an existing object is immutable; the labels of its pods are not.
    return Fix(f"add the pod label {key}: {value}", (Mend((*_LABELS, key), value),))


@rule(refused("DS102", "selector is empty"))
def selector_is_not_empty(body: Body) -> Iterator[Violation]:
    """An empty selector would select every pod of the namespace."""
    if body.get("kind") not in _SELECTING or _has_conditions(section(at(body, _SELECTOR))):
        return
    message = "the selector is empty: set matchLabels to labels of the pod template"
    labels = section(at(body, _LABELS))
    key = next((label for label in _NAMING if labels.get(label)), None)
    name = labels[key] if key else None if labels else section(body.get("metadata")).get("name")
    if not name:
        yield Violation(_SELECTOR, message)
        return
    key = key or _NAME
    mends = (Mend((*_SELECTOR, "matchLabels", key), name), Mend((*_LABELS, key), name))
    yield Violation(_SELECTOR, message, Fix(f"select the pods with {key}: {name}", mends))


@rule(refused("DS201", "maxUnavailable and maxSurge are both 0"))
def rollout_moves(body: Body) -> Iterator[Violation]:
    """With both numbers 0 no pod could be replaced."""
    numbers = _rolling(body)
    if numbers and not _counts(numbers[0]) and not _counts(numbers[1]):
        message = (
            "maxUnavailable and maxSurge are both 0, so that no pod could be replaced: set one of "
            "them"
        )
        yield Violation(_UNAVAILABLE, message, Fix("maxUnavailable: 1", (Mend(_UNAVAILABLE, 1),)))


@rule(refused("DS202", "maxSurge requires maxUnavailable 0"))
def one_budget(body: Body) -> Iterator[Violation]:
    """maxSurge requires maxUnavailable 0."""
    numbers = _rolling(body)
    if numbers and _counts(numbers[0]) and _counts(numbers[1]):
        is_set = section(at(body, _ROLLING)).get("maxUnavailable") is not None
        why = "" if is_set else " (default 1)"
        fix = Fix("maxUnavailable: 0", (Mend(_UNAVAILABLE, 0),), safe=True)
        yield Violation((*_ROLLING, "maxSurge"), f"maxSurge requires maxUnavailable: 0{why}", fix)


@rule(refused("DS204", "maxUnavailable or maxSurge is invalid"))
def rollout_numbers(body: Body) -> Iterator[Violation]:
    """Both numbers must be a count, or a percentage up to 100."""
    if (
        body.get("kind") != "DaemonSet"
        or section(at(body, ("spec", "updateStrategy"))).get("type") == "OnDelete"
    ):
        return
    for field in ("maxUnavailable", "maxSurge"):
        value = section(at(body, _ROLLING)).get(field)
        if value is not None and _amount(value) is None:
            yield Violation(
                (*_ROLLING, field),
                f'{field} is "{value}": must be an integer from 0, or a percentage from 0% to 100%',
            )


@rule(refused("DS418", "restartPolicy must be Always"))
def always_restarts(body: Body) -> Iterator[Violation]:
    """restartPolicy must be Always."""
    for path, spec in pod_specs(body):
        policy = spec.get("restartPolicy") or "Always"
        if body.get("kind") in _SELECTING and policy != "Always":
            way = (*path, "restartPolicy")
            message = f"restartPolicy {policy}: must be Always in a {body['kind']}"
            yield Violation(
                way, message, Fix("restartPolicy: Always", (Mend(way, "Always"),), safe=True)
            )


@rule(refused("DS419", "activeDeadlineSeconds is not allowed"))
def no_deadline(body: Body) -> Iterator[Violation]:
    """activeDeadlineSeconds is not allowed."""
    for path, spec in pod_specs(body):
        if body.get("kind") in _SELECTING and spec.get("activeDeadlineSeconds") is not None:
            way = (*path, "activeDeadlineSeconds")
            message = f"activeDeadlineSeconds is not allowed in a {body['kind']}: remove it"
            yield Violation(
                way, message, Fix("remove activeDeadlineSeconds", (Mend(way),), safe=True)
            )


def _has_conditions(selector: Any) -> bool:
    return bool(selector.get("matchLabels") or selector.get("matchExpressions"))


def _rolling(body: Body) -> tuple[int, int] | None:
    """(maxUnavailable, maxSurge) of a DaemonSet with rolling updates, as counts or percentages;
    None if they are invalid or not used.
    """
    if (
        body.get("kind") != "DaemonSet"
        or section(at(body, ("spec", "updateStrategy"))).get("type") == "OnDelete"
    ):
        return None
    rolling = section(at(body, _ROLLING))
    unavailable, surge = (
        _amount(_or(rolling.get("maxUnavailable"), 1)),
        _amount(_or(rolling.get("maxSurge"), 0)),
    )
    return None if unavailable is None or surge is None else (unavailable, surge)


def _or(value: Any, default: int) -> Any:
    return default if value is None else value


def _counts(amount: int) -> bool:
    return amount != 0


def _amount(value: Any) -> int | None:
    """A count or a percentage as a number; None if it is neither, or more than 100%."""
    if isinstance(value, int):
        return value if value >= 0 else None
    if isinstance(value, str) and _PERCENT.match(value):
        return int(value[:-1]) if int(value[:-1]) <= 100 else None
    return None
