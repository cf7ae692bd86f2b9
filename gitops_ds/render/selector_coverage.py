"""Whether sets of nodes are disjoint and complete over all label combinations: exactly, not over
today's nodes.

Of each label key only a few values are distinguishable: the mentioned ones, one other,
and the absence of the key. So a condition on a key is a set of such atoms (a bit mask), a term of
ANDs is a box over the keys, and a set of nodes is a union of boxes. Looking for a node that is
missed means cutting boxes off boxes until one is left that nothing covers; that box holds the
witness. The search never enumerates combinations: it splits only where a box is crossed by another.

Labels only: taints and tolerations say who may stay, not whom an agent is meant for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec

from gitops_ds.model.sources.bundle import Requirement

# ANDs of requirements, ORed. Beside the operators of labels `Gt` and `Lt` are taken, with one
# number as their value.
SelectorTerms = tuple[tuple[Requirement, ...], ...]
EVERYWHERE: SelectorTerms = ((),)
# A node's name in `matchFields` behaves like a label that every node has.
_FIELD = "metadata.name"

# Every key that is mentioned anywhere, with the atoms that it may be.
_Box = dict[str, int]


class Witness(msgspec.Struct, frozen=True):
    """A node by its labels, as few as will do, and the labels that it must not have."""

    labels: Mapping[str, str]
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As a half sentence: `with pool=gpu, without mig`."""
        has = (
            ["with " + ", ".join(f"{key}={value}" for key, value in self.labels.items())]
            if self.labels
            else []
        )
        lacks = ["without " + ", ".join(self.without)] if self.without else []
        return ", ".join(has + lacks) or "with any labels"


class Overlap(msgspec.Struct, frozen=True):
    """Two parts, and a node that both take."""

    first: str
    second: str
    node: Witness


def terms_of_daemonset(body: Mapping[str, Any]) -> SelectorTerms:
    """The nodes that a DaemonSet selects."""
    for step in ("spec", "template", "spec"):
        body = _mapping(body.get(step))
    return terms_of(body)


def terms_of(pod_spec: Mapping[str, Any]) -> SelectorTerms:
    """The nodes that a pod template selects: nodeSelector AND required node affinity.

    https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node: terms are ORed, an
    empty term takes no node.
    """
    base = tuple(
        Requirement(str(key), "In", (str(value),))
        for key, value in _mapping(pod_spec.get("nodeSelector")).items()
    )
    required: Mapping[str, Any] = pod_spec
    for step in ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        required = _mapping(required.get(step))
    if not required:
        return (base,)
    return tuple(
        (*base, *term)
        for entry in _list(required.get("nodeSelectorTerms"))
        if (term := _term(_mapping(entry)))
    )


def matches(terms: SelectorTerms, labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels is one of them."""
    return any(
        all(_holds(requirement, labels.get(requirement.key)) for requirement in term)
        for term in terms
    )


def find_gap(
    universe: SelectorTerms, parts: Iterable[SelectorTerms], ignored: SelectorTerms = ()
) -> Witness | None:
    """A node that is wanted, not ignored, and in none of the parts; None is a proof that there is
    none.
    """
    parts = list(parts)
    atoms = _Atoms((universe, ignored, *parts))
    others = [box for terms in (ignored, *parts) for box in atoms.boxes(terms)]
    for box in atoms.boxes(universe):
        if (left := _outside(box, others)) is not None:
            return atoms.witness(left)
    return None


def find_overlaps(
    parts: Mapping[str, SelectorTerms], ignored: SelectorTerms = ()
) -> Iterator[Overlap]:
    """For each two parts that share a node which is not ignored, such a node."""
    atoms = _Atoms((ignored, *parts.values()))
    others = atoms.boxes(ignored)
    boxes = {name: atoms.boxes(terms) for name, terms in parts.items()}
    for first, second in combinations(parts, 2):
        shared = (
            both for a in boxes[first] for b in boxes[second] if (both := _meet(a, b)) is not None
        )
        left = next((rest for box in shared if (rest := _outside(box, others)) is not None), None)
        if left is not None:
            yield Overlap(first, second, atoms.witness(left))


def _term(entry: Mapping[str, Any]) -> tuple[Requirement, ...]:
    expressions = [
        _mapping(e) for part in ("matchExpressions", "matchFields") for e in _list(entry.get(part))
    ]
    return tuple(
        Requirement(
            str(e.get("key")),
            str(e.get("operator")),
            tuple(str(value) for value in _list(e.get("values"))),
        )
        for e in expressions
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    """The mapping; an empty one for what the API server would refuse."""
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _holds(requirement: Requirement, value: str | None) -> bool:
    """One requirement against a label's value, None where the node has no such label."""
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            bound, number = _number(next(iter(requirement.values), "")), _number(value or "")
            if bound is None or number is None:
                return False
            return number > bound if requirement.operator == "Gt" else number < bound
        case _:
            return False


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


class _Atoms:
    """The distinguishable values of each key in some terms: absence first, then values; an
    atom is a bit.
    """

    def __init__(self, all_terms: Iterable[SelectorTerms]) -> None:
        mentioned: dict[str, set[str]] = {}
        for requirement in (r for terms in all_terms for term in terms for r in term):
            values = mentioned.setdefault(requirement.key, set())
            if requirement.operator in ("Gt", "Lt"):
                bounds = (n for n in map(_number, requirement.values) if n is not None)
                values.update(str(n + d) for n in bounds for d in (-1, 0, 1))
            else:
                values.update(requirement.values)
        self.values: dict[str, list[str | None]] = {}
        for key, values in mentioned.items():
            absent: list[str | None] = [] if key == _FIELD else [None]
            self.values[key] = [*absent, *sorted(values), _fresh(values)]

    def boxes(self, terms: SelectorTerms) -> list[_Box]:
        """The terms as boxes, without those that hold no node."""
        return [box for term in terms if (box := self._box(term)) is not None]

    def _box(self, term: Sequence[Requirement]) -> _Box | None:
        box = {key: (1 << len(values)) - 1 for key, values in self.values.items()}
        for requirement in term:
            box[requirement.key] &= self._mask(requirement)
        return box if all(box.values()) else None

    def _mask(self, requirement: Requirement) -> int:
        values = self.values[requirement.key]
        return sum(1 << bit for bit, value in enumerate(values) if _holds(requirement, value))

    def witness(self, box: _Box) -> Witness:
        """A node in the box, without the keys of any value."""
        constrained = {
            key: mask
            for key, mask in sorted(box.items())
            if mask != (1 << len(self.values[key])) - 1
        }
        first = {
            key: self.values[key][(mask & -mask).bit_length() - 1]
            for key, mask in constrained.items()
        }
        labels = {key: value for key, value in first.items() if value is not None}
        return Witness(labels, tuple(key for key in first if key not in labels))


def _fresh(values: set[str]) -> str:
    name = "other"
    while name in values:
        name += "-"
    return name


def _meet(a: _Box, b: _Box) -> _Box | None:
    """The box of what is in both."""
    both = {key: mask & b[key] for key, mask in a.items()}
    return both if all(both.values()) else None


def _outside(box: _Box, others: Sequence[_Box]) -> _Box | None:
    """A part of the box that none of the others reaches; None where they cover it."""
    crossing = [other for other in others if _meet(box, other) is not None]
    if not crossing:
        return box
    # The one that cuts the box along the fewest keys leaves the fewest pieces; one that covers it
    # leaves none.
    cut = min(
        crossing, key=lambda other: sum(bool(mask & ~other[key]) for key, mask in box.items())
    )
    rest = [other for other in crossing if other is not cut]
    inside = dict(box)
    for key, mask in cut.items():
        outside = inside[key] & ~mask
        if outside and (left := _outside({**inside, key: outside}, rest)) is not None:
            return left
        inside[key] &= mask
    return None
