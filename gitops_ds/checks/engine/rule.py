"""A rule: a definition, and a function over a context that finds its violations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec.structs import asdict

from gitops_ds.core import names
from gitops_ds.core.finding import Fix, RuleDefinition
from gitops_ds.core.objects import Body, Key, Path
from gitops_ds.core.values import replace

# A part of an object's body: a pod spec, a container, a volume.
Spec = Mapping[str, Any]


class Violation(msgspec.Struct, frozen=True):
    """A violation of a rule: the path of the value, a message, and a fix if one is known.

    Rules over several objects set `object`, and `related` for the other object of the conflict;
    rules over several clusters set `cluster`.
    """

    path: Path
    message: str
    fix: Fix | None = None
    object: Key | None = None
    related: Key | None = None
    cluster: str = ""


Context = TypeVar("Context")
Check = Callable[[Context], Iterable[Violation]]
# The value of a rule's switch in `rules:` of gitops-ds.yaml: on, off, or on with settings.
Switch = bool | Mapping[str, Any]


class Rule(RuleDefinition, Generic[Context], frozen=True, kw_only=True):
    """A rule over a context: an object's body, a cluster, a change, or a change over clusters.

    `from_settings` builds the check of a rule with settings from those of the repository.
    """

    check: Check[Context]
    from_settings: Callable[[Mapping[str, Any]], Check[Context]] | None = None

    def by_settings(self, switch: Switch | None) -> Rule[Context]:
        """The rule with the repository's settings applied."""
        return (
            replace(self, check=self.from_settings(switch))
            if self.from_settings and isinstance(switch, Mapping)
            else self
        )


ObjectRule = Rule[Body]


def rule(
    definition: RuleDefinition,
    *,
    from_settings: Callable[[Mapping[str, Any]], Check[Any]] | None = None,
) -> Callable[[Check[Context]], Rule[Context]]:
    """Makes a check the rule of a definition; the tables of rules collect it (`rules_in`)."""

    def of_check(check: Check[Context]) -> Rule[Context]:
        return Rule(**asdict(definition), check=check, from_settings=from_settings)

    return of_check


def rules_in(*namespaces: Mapping[str, Any]) -> tuple[Rule[Any], ...]:
    """The rules of modules in the order of their IDs, those of one ID in the order of the code."""
    every = (value for names in namespaces for value in names.values() if isinstance(value, Rule))
    found = {id(value): value for value in every}  # a module can import one of another
    return tuple(sorted(found.values(), key=lambda declared: declared.id))


def class_of(body: Body) -> str:
    """The class annotation of a manifest: cni, csi, dns, monitoring, logging, security, gpu or
    general; empty if absent.
    """
    annotations = section(section(body.get("metadata")).get("annotations"))
    return str(annotations.get(names.CLASS) or "")


# dict comes first, because the test for an abstract class is slow.
_MAPPING: Final = (dict, Mapping)
_NONE: Final[Mapping[str, Any]] = {}


def section(value: Any) -> Mapping[str, Any]:
    """A mapping; empty if absent or null."""
    if value is None:  # the usual case
        return _NONE
    return value if isinstance(value, _MAPPING) else _NONE


def items(value: Any) -> list[Any]:
    """A list without null entries; empty if absent or null."""
    return [entry for entry in value if entry is not None] if isinstance(value, list) else []


SPEC: Final[Path] = ("spec",)
POD: Final[Path] = ("spec", "template", "spec")


def template(body: Body) -> Mapping[str, Any]:
    """The pod template of a DaemonSet."""
    return section(section(body.get("spec")).get("template"))


def pod(body: Body) -> Mapping[str, Any]:
    """The pod spec of a DaemonSet."""
    return section(template(body).get("spec"))


def of_daemonsets(
    check: Callable[[Body, Mapping[str, Any], Mapping[str, Any]], Iterable[Violation]],
) -> Check[Body]:
    """A check of DaemonSets only. It gets the body, the DaemonSet's spec (at SPEC) and the pod spec
    (at POD).
    """

    @wraps(check)
    def of_body(body: Body) -> Iterable[Violation]:
        if body.get("kind") != "DaemonSet":
            return ()
        if type(body) is Looked:
            return check(body, body.spec, body.pod)
        return check(body, section(body.get("spec")), pod(body))

    return of_body


_TEMPLATES = (
    "DaemonSet",
    "Deployment",
    "StatefulSet",
    "ReplicaSet",
    "ReplicationController",
    "Job",
)


def pod_path(body: Body) -> Path | None:
    """The path of the object with a pod's metadata and spec; None for a kind without pods."""
    kind = body.get("kind")
    if kind == "Pod":
        return ()
    if kind in _TEMPLATES:
        return ("spec", "template")
    return ("spec", "jobTemplate", "spec", "template") if kind == "CronJob" else None


def at(body: Any, path: Path) -> Any:
    """The value at a path; None if the path does not exist."""
    for step in path:
        if isinstance(body, _MAPPING):
            body = body.get(str(step))
        elif isinstance(body, list) and isinstance(step, int) and step < len(body):
            body = body[step]
        else:
            return None
    return body


class Looked(dict[str, Any]):
    """An immutable body during a check, with cached results of the searches that many rules share.

    `spec` and `pod` are the specs of a DaemonSet and of its pods.
    """

    __slots__ = ("containers", "pod", "pod_specs", "spec")

    spec: Mapping[str, Any]
    pod: Mapping[str, Any]
    pod_specs: Sequence[tuple[Path, Mapping[str, Any]]]
    containers: Sequence[tuple[Path, Mapping[str, Any]]]

    def __init__(self, body: Body) -> None:
        """Finds the pods and their containers."""
        super().__init__(body)
        self.spec = section(body.get("spec"))
        self.pod = pod(body)
        self.pod_specs = _pod_specs(body)
        self.containers = _containers(self.pod_specs)


def pod_specs(body: Body) -> Sequence[tuple[Path, Mapping[str, Any]]]:
    """The pod spec of an object and its path; nothing for a kind without pods."""
    return body.pod_specs if type(body) is Looked else _pod_specs(body)


def containers(body: Body) -> Sequence[tuple[Path, Mapping[str, Any]]]:
    """All containers of an object's pods, init containers first, with their paths."""
    return body.containers if type(body) is Looked else _containers(_pod_specs(body))


def _pod_specs(body: Body) -> Sequence[tuple[Path, Mapping[str, Any]]]:
    if body.get("kind") == "DaemonSet":  # the usual case, without a search
        spec = template(body).get("spec")
        return ((POD, spec),) if isinstance(spec, _MAPPING) else ()
    path = pod_path(body)
    if path is None or not isinstance(spec := at(body, (*path, "spec")), _MAPPING):
        return ()
    return (((*path, "spec"), spec),)


def _containers(
    all_containers: Sequence[tuple[Path, Mapping[str, Any]]],
) -> Sequence[tuple[Path, Mapping[str, Any]]]:
    return [
        ((*path, group, index), container)
        for path, spec in all_containers
        for group in ("initContainers", "containers")
        for index, container in enumerate(spec.get(group) or ())
        if isinstance(container, _MAPPING)
    ]
