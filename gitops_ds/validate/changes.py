"""Rules that look at a change: an object as the base has it, and as the head has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gitops_ds.kinds import requirements
from gitops_ds.model.bundle import Manifest
from gitops_ds.model.finding import Severity
from gitops_ds.model.objects import Body, Key, Path
from gitops_ds.validate.rule import section


@dataclass(frozen=True, slots=True)
class Sides:
    """The manifests of one cluster before and after."""

    base: Mapping[Key, Manifest]
    head: Mapping[Key, Manifest]

    def both(self) -> Iterator[tuple[Key, Body, Body]]:
        """The DaemonSets that stay, before and after."""
        for key, manifest in self.head.items():
            if _is_daemonset(key) and key in self.base:
                yield key, self.base[key].body, manifest.body

    def gone(self) -> list[Key]:
        """The DaemonSets that only the base has."""
        return [key for key in self.base if _is_daemonset(key) and key not in self.head]

    def come(self) -> list[Key]:
        """The DaemonSets that only the head has."""
        return [key for key in self.head if _is_daemonset(key) and key not in self.base]


# The object (one that is gone is named by the base), the path, and a sentence.
ChangeCheck = Callable[[Sides], Iterable[tuple[Key, Path, str]]]


@dataclass(frozen=True, slots=True)
class ChangeRule:
    """A rule over a change. `refused`: the API server would refuse it where the base is applied."""

    id: str
    severity: Severity
    refused: bool
    summary: str
    check: ChangeCheck
    on: bool = True


def selector_stays(sides: Sides) -> Iterator[tuple[Key, Path, str]]:
    """DS103: the selector of an object that is there can't be changed."""
    for key, before, after in sides.both():
        if _selector(before) != _selector(after):
            message = (
                "the selector can't be changed. Put it back, or replace the DaemonSet and keep its pods running meanwhile:"
                f" kubectl -n {key.namespace} delete ds {key.name} --cascade=orphan, then apply; pods that the new selector matches"
                " are adopted, the others must be deleted by hand"
            )
            yield key, ("spec", "selector"), message


def no_rename(sides: Sides) -> Iterator[tuple[Key, Path, str]]:
    """DS701: an agent keeps its name: another name is another agent."""
    for new in sides.come():
        for old in sides.gone():
            if _same_agent(sides.base[old].body, sides.head[new].body):
                message = (
                    f"it seems to be {old} under another name: for a time each node runs both, or none. Keep the name, or do it in"
                    " two steps"
                )
                yield new, ("metadata", "name"), message


def stays(sides: Sides) -> Iterator[tuple[Key, Path, str]]:
    """DS702: no agent is taken away."""
    renamed = {old for new in sides.come() for old in sides.gone() if _same_agent(sides.base[old].body, sides.head[new].body)}
    for key in sides.gone():
        if key not in renamed:
            yield key, (), "it is taken away: with pruning its pods go from every node"


def _is_daemonset(key: Key) -> bool:
    return (key.group, key.kind) == ("apps", "DaemonSet")


def _selector(body: Body) -> frozenset[tuple[str, str, frozenset[str]]]:
    found = requirements.of_label_selector(section(section(body.get("spec")).get("selector")))
    return frozenset((one.key, one.operator, frozenset(one.values)) for one in found)


def _same_agent(before: Body, after: Body) -> bool:
    return _selector(before) == _selector(after) or _repositories(before) == _repositories(after)


def _repositories(body: Body) -> list[str]:
    """The images of the containers without tag and digest."""
    spec: Any = section(section(section(body.get("spec")).get("template")).get("spec"))
    images = [str(section(one).get("image") or "") for one in spec.get("containers") or ()]
    return [image.partition("@")[0].rpartition("/")[0] + "/" + image.rpartition("/")[2].partition(":")[0] for image in images]


RULES: Final = (
    ChangeRule("DS103", Severity.ERROR, True, "the selector of an object that is there stays", selector_stays),
    ChangeRule("DS701", Severity.ERROR, False, "an agent keeps its name", no_rename),
    ChangeRule("DS702", Severity.ERROR, False, "no agent is taken away", stays),
)
