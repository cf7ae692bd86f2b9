"""What an API server refuses in a workload beyond its shape: selectors, rollout numbers, what its pods may not ask for.

ValidateDaemonSet, ValidateDeployment and their like in pkg/apis/apps/validation/validation.go of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from gitops_ds.kinds import requirements
from gitops_ds.model.objects import Body, Path
from gitops_ds.validate.rule import at, pod_specs, section

_SELECTING: Final = frozenset({"DaemonSet", "Deployment", "StatefulSet", "ReplicaSet"})
_PERCENT: Final = re.compile(r"[0-9]+%\Z", re.ASCII)
_SELECTOR: Final[Path] = ("spec", "selector")
_ROLLING: Final[Path] = ("spec", "updateStrategy", "rollingUpdate")


def selector_matches(body: Body) -> Iterator[tuple[Path, str]]:
    """DS101: the selector must match the labels of the template."""
    selector = section(at(body, _SELECTOR))
    if body.get("kind") not in _SELECTING or not _has_conditions(selector):
        return
    labels = section(at(body, ("spec", "template", "metadata", "labels")))
    for key, value in section(selector.get("matchLabels")).items():
        if (labels.get(key) or "") != (value or "") or key not in labels:
            says = f'says "{labels[key]}"' if key in labels else "does not have it"
            yield (*_SELECTOR, "matchLabels", key), f"the selector wants the label {key}: {value}, the pod template {says}"
    held = {key: str(value or "") for key, value in labels.items()}
    for index, entry in enumerate(selector.get("matchExpressions") or ()):
        if not requirements.matches(requirements.from_body(entry), held):
            yield (
                (*_SELECTOR, "matchExpressions", index),
                "the labels of the pod template do not meet this condition of the selector",
            )


def selector_is_said(body: Body) -> Iterator[tuple[Path, str]]:
    """DS102: an empty selector would own every pod of the namespace."""
    if body.get("kind") in _SELECTING and not _has_conditions(section(at(body, _SELECTOR))):
        yield _SELECTOR, "the selector is empty: name the labels of the pod template under matchLabels"


def rollout_moves(body: Body) -> Iterator[tuple[Path, str]]:
    """DS201: with both numbers 0 no pod could ever be replaced."""
    numbers = _rolling(body)
    if numbers and not _counts(numbers[0]) and not _counts(numbers[1]):
        yield (*_ROLLING, "maxUnavailable"), "maxUnavailable and maxSurge are both 0: nothing could be replaced; set one of them"


def one_budget(body: Body) -> Iterator[tuple[Path, str]]:
    """DS202: surge asks for maxUnavailable 0, which is 1 where it is not said."""
    numbers = _rolling(body)
    if numbers and _counts(numbers[0]) and _counts(numbers[1]):
        said = section(at(body, _ROLLING)).get("maxUnavailable") is not None
        why = "" if said else ", which is 1 where it is not said"
        yield (*_ROLLING, "maxSurge"), f"maxSurge needs maxUnavailable: 0{why}"


def rollout_numbers(body: Body) -> Iterator[tuple[Path, str]]:
    """DS204: a count, or per cent up to 100."""
    if body.get("kind") != "DaemonSet" or section(at(body, ("spec", "updateStrategy"))).get("type") == "OnDelete":
        return
    for field in ("maxUnavailable", "maxSurge"):
        value = section(at(body, _ROLLING)).get(field)
        if value is not None and _amount(value) is None:
            yield (*_ROLLING, field), f'{field} is "{value}": write a whole number from 0, or per cent from 0% to 100%'


def always_restarts(body: Body) -> Iterator[tuple[Path, str]]:
    """DS418."""
    for path, spec in pod_specs(body):
        policy = spec.get("restartPolicy") or "Always"
        if body.get("kind") in _SELECTING and policy != "Always":
            yield (*path, "restartPolicy"), f"restartPolicy {policy}: the pods of a {body['kind']} can only have Always"


def no_deadline(body: Body) -> Iterator[tuple[Path, str]]:
    """DS419."""
    for path, spec in pod_specs(body):
        if body.get("kind") in _SELECTING and spec.get("activeDeadlineSeconds") is not None:
            yield (*path, "activeDeadlineSeconds"), f"a {body['kind']} does not take activeDeadlineSeconds: remove it"


def _has_conditions(selector: Any) -> bool:
    return bool(selector.get("matchLabels") or selector.get("matchExpressions"))


def _rolling(body: Body) -> tuple[int, int] | None:
    """(maxUnavailable, maxSurge) as numbers or per cent of a DaemonSet that rolls; None where that can't be said."""
    if body.get("kind") != "DaemonSet" or section(at(body, ("spec", "updateStrategy"))).get("type") == "OnDelete":
        return None
    rolling = section(at(body, _ROLLING))
    unavailable, surge = _amount(_or(rolling.get("maxUnavailable"), 1)), _amount(_or(rolling.get("maxSurge"), 0))
    return None if unavailable is None or surge is None else (unavailable, surge)


def _or(value: Any, default: int) -> Any:
    return default if value is None else value


def _counts(amount: int) -> bool:
    return amount != 0


def _amount(value: Any) -> int | None:
    """A count or a percentage as a number; None where it is neither, or more than all."""
    if isinstance(value, int):
        return value if value >= 0 else None
    if isinstance(value, str) and _PERCENT.match(value):
        return int(value[:-1]) if int(value[:-1]) <= 100 else None
    return None
