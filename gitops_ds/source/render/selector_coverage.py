"""Whether sets of nodes are disjoint and complete over all label combinations: exactly, not over
today's nodes.

Of each label key only a few values are distinguishable: the mentioned ones, one other, and the
absence of the key. So a condition on a key is a set of such atoms (a bit mask), a term of ANDs is a
box over the keys, and a set of nodes is a union of boxes. The search for an uncovered node
subtracts boxes from boxes until a box is left that no other covers; that box has the witness. The
search never enumerates combinations: it splits a box only if another one intersects it.

Only labels count: taints and tolerations decide which pods may run, not for which nodes an agent is
intended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec

from gitops_ds.core.sources.bundle import Requirement

# ANDs of requirements, ORed. Operators are those of labels, and `Gt` and `Lt`, whose value is one
# number.
SelectorTerms = tuple[tuple[Requirement, ...], ...]
EVERYWHERE: SelectorTerms = ((),)
# A node's name in `matchFields` behaves like a label that every node has.
_FIELD = "metadata.name"

# Every mentioned key, with its possible atoms.
_Box = dict[str, int]


class Witness(msgspec.Struct, frozen=True):
    """A node by its labels, as few as possible, and the labels that it must not have."""

    labels: Mapping[str, str]
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As a phrase: `with pool=gpu, without mig`."""
        has = (
            ["with " + ", ".join(f"{key}={value}" for key, value in self.labels.items())]
            if self.labels
            else []
        )
        lacks = ["without " + ", ".join(self.without)] if self.without else []
        return ", ".join(has + lacks) or "with any labels"


class Overlap(msgspec.Struct, frozen=True):
    """Two parts, and a node that both select."""

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
    empty term matches no node.
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
    """Whether the terms select a node with these labels."""
    return any(
        all(_holds(requirement, labels.get(requirement.key)) for requirement in term)
        for term in terms
    )


def find_gap(
    universe: SelectorTerms, parts: Iterable[SelectorTerms], ignored: SelectorTerms = ()
) -> Witness | None:
    """An expected node that is not ignored and in none of the parts; None proves that no such node
    exists.
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
    """A common node, not ignored, of each two overlapping parts."""
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
    """The mapping; an empty one for other types, which the API server would refuse."""
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _holds(requirement: Requirement, value: str | None) -> bool:
    """Whether a label's value (None: the node has no such label) meets a requirement."""
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
        """The terms as boxes, without empty boxes."""
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
    """The intersection of both boxes."""
    both = {key: mask & b[key] for key, mask in a.items()}
    return both if all(both.values()) else None


def _outside(box: _Box, others: Sequence[_Box]) -> _Box | None:
    """A part of the box outside of all others; None if they cover it."""
    crossing = [other for other in others if _meet(box, other) is not None]
    if not crossing:
        return box
    # The box that cuts along the fewest keys leaves the fewest pieces; one that covers it leaves no
    # piece.
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
