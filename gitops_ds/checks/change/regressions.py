"""Losses through a change: an older image, lower guarantees, no rollback."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.checks.advice import images
from gitops_ds.checks.cluster import references
from gitops_ds.checks.engine.contexts import ChangeSides
from gitops_ds.checks.engine.rule import POD, Violation, items, pod, rule, section
from gitops_ds.core.finding import Fix, Mend, Severity, advice
from gitops_ds.core.objects import Body, Key, Path
from gitops_ds.kube.apimachinery import capacity, label_selector, quantities

_TEMPLATE: Final[Path] = ("spec", "template")
_MOST_GROWTH: Final = 50  # per cent of the former requests
_GRACE: Final = 30
_PRIORITIES: Final = {
    "": 0,
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}
_PART: Final = re.compile(r"[0-9]+|[a-z]+", re.ASCII)
_VERSION: Final = re.compile(r"v?[0-9]+(\.[0-9]+)*([-_+.].*)?\Z", re.ASCII)


@rule(advice("DS704", Severity.INFO, "pods restart without an effective change", on=False))
def restarts_for_something(sides: ChangeSides) -> Iterator[Violation]:
    """Pods restart although only metadata of the template changed."""
    for key, before, after in sides.rolling():
        if section(before.get("spec")) == section(after.get("spec")):
            changed = sorted(_marks(before).items() ^ _marks(after).items())
            names = ", ".join(dict.fromkeys(name for name, _ in changed))
            message = (
                f"every pod restarts, and only {names} of the template's metadata changes: put it "
                "on the DaemonSet itself"
            )
            path = (*_TEMPLATE, "metadata")
            fix = Fix("restore the template's metadata", (Mend(path, before.get("metadata")),))
            yield Violation(path, message, object=key, fix=fix)


def _marks(template: Body) -> dict[str, str]:
    metadata = section(template.get("metadata"))
    return {
        str(key): str(value)
        for part in ("labels", "annotations")
        for key, value in section(metadata.get(part)).items()
    }


@rule(advice("DS706", Severity.WARNING, "image is downgraded", on=False))
def images_go_forward(sides: ChangeSides) -> Iterator[Violation]:
    """An image has another registry, an older version, or loses its digest."""
    for key, before, after in sides.rolling():
        old = {name: image for _, name, image in _images(before)}
        for path, name, image in _images(after):
            if old.get(name, image) == image:
                continue
            was, now = images.parse(old[name]), images.parse(image)
            reasons = []
            if was.registry != now.registry:
                reasons.append(
                    f"comes from {now.registry or 'an unspecified registry'} instead of "
                    f"{was.registry or 'an unspecified one'}"
                )
            if was.digest and not now.digest:
                reasons.append("has lost its digest")
            if was.repository == now.repository and _older(now.tag, was.tag):
                reasons.append(f"goes back from {was.tag} to {now.tag}")
            if reasons:
                yield Violation(
                    path,
                    f"the image of {name} {' and '.join(reasons)}: if that is intended, state it "
                    "in the pull request",
                    object=key,
                )


def _images(template: Body) -> Iterator[tuple[Path, str, str]]:
    spec = section(template.get("spec"))
    for group in ("initContainers", "containers"):
        for index, container in enumerate(items(spec.get(group))):
            if container.get("image"):
                yield (
                    (*POD, group, index, "image"),
                    str(container.get("name")),
                    str(container["image"]),
                )


def _older(tag: str, than: str) -> bool:
    """Whether a version is older than another, by its numbers; `1.2.3-rc1` precedes `1.2.3`. Tags
    that are not versions are not compared.
    """
    if not (_VERSION.match(tag) and _VERSION.match(than)):
        return False
    return _rank(tag) < _rank(than)


def _rank(tag: str) -> tuple[tuple[int, ...], int, tuple[tuple[int, str], ...]]:
    numbers, dash, rest = tag.lower().removeprefix("v").replace("_", "-").partition("-")
    early = dash and re.match(r"(alpha|beta|rc|pre|dev)", rest)
    parts = (
        tuple((int(part), "") if part.isdigit() else (0, part) for part in _PART.findall(rest))
        if early
        else ()
    )
    return tuple(int(part) for part in re.findall("[0-9]+", numbers)), 0 if early else 1, parts


@rule(advice("DS707", Severity.WARNING, "agent's requests or guarantees change a lot", on=False))
def requests_are_similar(sides: ChangeSides) -> Iterator[Violation]:
    """Large changes of requests, priority and termination grace period."""
    for key, before, after in sides.rolling():
        was, now = section(before.get("spec")), section(after.get("spec"))
        for resource, old, new in _requests(was, now):
            if old and (new - old) * 100 > _MOST_GROWTH * old:
                message = (
                    f"its pod requests {quantities.amount(resource, new)} of {resource}, "
                    f"{quantities.amount(resource, old)} before: on every node"
                )
                yield Violation((*POD, "containers"), message, object=key)
        priorities = [
            _priority(sides, str(spec.get("priorityClassName") or "")) for spec in (was, now)
        ]
        if None not in priorities and (priorities[1] or 0) < (priorities[0] or 0):
            message = (
                f"its priority goes down from {was.get('priorityClassName')}: it is preempted, "
                "and evicted, before others"
            )
            yield Violation((*POD, "priorityClassName"), message, object=key)
        times = [
            _GRACE
            if (seconds := spec.get("terminationGracePeriodSeconds")) is None
            else int(seconds)
            for spec in (was, now)
        ]
        if times[1] < times[0]:
            message = (
                f"its pod has {times[1]} s to terminate, {times[0]} s before: is that "
                "enough to write its data?"
            )
            yield Violation((*POD, "terminationGracePeriodSeconds"), message, object=key)


def _requests(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    try:
        old, new = capacity.requested(was), capacity.requested(now)
    except ValueError:  # DS010 reports invalid quantities
        return
    for resource in ("cpu", "memory"):
        yield resource, old.get(resource, 0), new.get(resource, 0)


def _priority(sides: ChangeSides, name: str) -> int | None:
    priority_class = sides.head.get(Key("scheduling.k8s.io", "PriorityClass", "", name))
    value = section(priority_class.body if priority_class else None).get(
        "value", _PRIORITIES.get(name)
    )
    return value if isinstance(value, int) else None


@rule(advice("DS710", Severity.WARNING, "change cannot be rolled back", on=False))
def way_back(sides: ChangeSides) -> Iterator[Violation]:
    """A change that cannot be rolled back."""
    for key, before, after in sides.both():
        if sides.base[key].digest != sides.head[key].digest:
            yield from no_way_back(key, before, after, sides)


def no_way_back(key: Key, before: Body, after: Body, sides: ChangeSides) -> Iterator[Violation]:
    """The reasons why a DaemonSet cannot be rolled back to the base, each with the path at fault;
    empty if it can.
    """
    was, now = (section(section(body.get("spec")).get("selector")) for body in (before, after))
    if set(label_selector.of_label_selector(was)) != set(label_selector.of_label_selector(now)):
        yield Violation(
            ("spec", "selector"),
            "a revert cannot roll back: the selector is immutable",
            object=key,
        )
    if section(after.get("spec")).get("revisionHistoryLimit") == 0:
        path: Path = ("spec", "revisionHistoryLimit")
        yield Violation(
            path,
            "no old revision is kept: `kubectl rollout undo` has no target; only a revert in Git "
            "can roll back",
            object=key,
        )
    for _, kind, name in references.of(pod(before)):
        needed = Key("", kind, key.namespace, name)
        if needed in sides.base and needed not in sides.head:
            message = (
                f"the running pods need {needed}, which this change removes: after a rollback no "
                f"pod starts without it"
            )
            yield Violation(POD, message, object=key)
