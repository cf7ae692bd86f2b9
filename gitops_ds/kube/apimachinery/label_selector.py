"""Conditions on labels: label selectors, node selectors, and their evaluation.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gitops_ds.core.objects import Body
from gitops_ds.core.sources.bundle import Requirement

_INTEGER = re.compile(r"[+-]?[0-9]+")
_LONGEST_INTEGER = 19  # digits of 2**63
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def from_body(body: Body) -> Requirement:
    """An entry of `matchExpressions`."""
    return Requirement(
        str(body.get("key", "")),
        str(body.get("operator", "")),
        tuple(str(value) for value in body.get("values") or ()),
    )


def of_label_selector(selector: Body) -> tuple[Requirement, ...]:
    """All conditions of a metav1.LabelSelector; the empty selector has no conditions, so it matches
    everything.
    """
    equal = (
        Requirement(key, "In", (str(value),))
        for key, value in sorted((selector.get("matchLabels") or {}).items())
    )
    return (*equal, *(from_body(entry) for entry in selector.get("matchExpressions") or ()))


def is_valid(requirement: Requirement) -> bool:
    """Whether a node selector requirement is valid for the scheduler; a term with an invalid one
    matches no node.

    `NewRequirement` of k8s.io/apimachinery/pkg/labels.
    """
    if not _valid_key(requirement.key):
        return False
    values = requirement.values
    match requirement.operator:
        case "In" | "NotIn":
            return bool(values) and all(_valid_value(value) for value in values)
        case "Exists" | "DoesNotExist":
            return not values
        case "Gt" | "Lt":
            return len(values) == 1 and integer(values[0]) is not None
        case _:
            return False


def matches(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether the labels meet one valid requirement. An absent label meets NotIn and DoesNotExist
    only.
    """
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def all_match(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Whether the labels meet every requirement."""
    for requirement in requirements:  # noqa: SIM110  a generator takes twice as long, for each pod
        if not matches(requirement, labels):
            return False
    return True


def integer(text: str) -> int | None:
    """A 64-bit integer as Go's ParseInt reads it, else None."""
    if not _INTEGER.fullmatch(text):
        return None
    sign, digits = ("-" if text[0] == "-" else ""), text.lstrip("+-").lstrip("0") or "0"
    if len(digits) > _LONGEST_INTEGER:
        return None  # Python raises an error for more than 4,300 digits
    number = int(sign + digits)
    return number if -(2**63) <= number < 2**63 else None


def _compares(requirement: Requirement, value: str | None) -> bool:
    have = None if value is None else integer(value)
    bound = integer(requirement.values[0]) if requirement.values else None
    if have is None or bound is None:
        return False
    return have > bound if requirement.operator == "Gt" else have < bound


def _valid_key(key: str) -> bool:
    domain, slash, name = key.rpartition("/")
    if slash and not (len(domain) <= 253 and _DOMAIN.fullmatch(domain)):
        return False
    return _NAME.fullmatch(name) is not None


def _valid_value(value: str) -> bool:
    return not value or _NAME.fullmatch(value) is not None


_TERM = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<key1>[^\s,=!()<>]+)
      | (?P<key2>[^\s,=!()<>]+)\s*(?P<equal>==|=|!=)\s*(?P<value>[^\s,=!()<>]*)
      | (?P<key3>[^\s,=!()<>]+)\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)
      | (?P<key4>[^\s,=!()<>]+)
    )\s*(?:,|$)""",
    re.VERBOSE,
)


def parse(text: str) -> tuple[Requirement, ...]:
    """The conditions in `a=b,c!=d,e in (f,g),h,!i`, as `kubectl -l` accepts them. Raises
    ValueError.
    """
    requirements, at = list[Requirement](), 0
    while at < len(text):
        term = _TERM.match(text, at)
        requirement = _of_term(term) if term else None
        if term is None or requirement is None or not is_valid(requirement):
            raise ValueError(f"{text!r} is not a label selector: write a=b, a!=b, a in (b,c) or !a")
        requirements.append(requirement)
        at = term.end()
    return tuple(requirements)


def _of_term(term: re.Match[str]) -> Requirement:
    if term["absent"]:
        return Requirement(term["key1"], "DoesNotExist", ())
    if term["equal"]:
        operator = "NotIn" if term["equal"] == "!=" else "In"
        return Requirement(term["key2"], operator, (term["value"],))
    if term["set"]:
        values = tuple(value.strip() for value in term["values"].split(","))
        return Requirement(term["key3"], "In" if term["set"] == "in" else "NotIn", values)
    return Requirement(term["key4"], "Exists", ())
