"""Coverage is exact: it agrees with brute force over every label combination that the terms can
distinguish.
"""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core.sources.bundle import Requirement
from gitops_ds.source.render import selector_coverage, variants
from gitops_ds.source.render.selector_coverage import EVERYWHERE, SelectorTerms

KEYS = ("pool", "arch", "zone")
VALUES = ("a", "b")
# Absent, mentioned, and not mentioned: all that In, NotIn, Exists and DoesNotExist distinguish.
UNIVERSE = [
    {key: value for key, value in zip(KEYS, values, strict=True) if value is not None}
    for values in product((None, *VALUES, "else"), repeat=len(KEYS))
]


def requirement(operators: tuple[str, ...]) -> st.SearchStrategy[Requirement]:
    def made(key: str, operator: str, values: list[str]) -> Requirement:
        return Requirement(
            key, operator, tuple(sorted(values)) if operator in ("In", "NotIn") else ()
        )

    return st.builds(
        made,
        st.sampled_from(KEYS),
        st.sampled_from(operators),
        st.lists(st.sampled_from(VALUES), min_size=1, unique=True),
    )


TERMS = st.lists(
    st.lists(requirement(("In", "NotIn", "Exists", "DoesNotExist")), max_size=3).map(tuple),
    max_size=3,
).map(tuple)


def taken(terms: SelectorTerms, labels: dict[str, str]) -> bool:
    """Written apart from the code under test: Kubernetes' label selector semantics."""

    def holds(r: Requirement) -> bool:
        if r.operator == "Exists":
            return r.key in labels
        if r.operator == "DoesNotExist":
            return r.key not in labels
        return (labels.get(r.key) in r.values) == (r.operator == "In")

    return any(all(holds(r) for r in term) for term in terms)


@given(wanted=TERMS, parts=st.lists(TERMS, max_size=3), ignored=TERMS)
def test_a_gap_is_reported_exactly_when_an_expected_node_is_in_no_part(
    wanted: SelectorTerms, parts: list[SelectorTerms], ignored: SelectorTerms
) -> None:
    def missed(labels: dict[str, str]) -> bool:
        return (
            taken(wanted, labels)
            and not taken(ignored, labels)
            and not any(taken(part, labels) for part in parts)
        )

    witness = selector_coverage.find_gap(wanted, parts, ignored)
    assert (witness is not None) == any(missed(labels) for labels in UNIVERSE)
    if witness is not None:
        assert missed(dict(witness.labels))
        assert not set(witness.without) & witness.labels.keys()


@given(parts=st.lists(TERMS, min_size=2, max_size=4), ignored=TERMS)
def test_an_overlap_is_found_exactly_when_some_node_is_in_two_parts(
    parts: list[SelectorTerms], ignored: SelectorTerms
) -> None:
    named = {str(index): part for index, part in enumerate(parts)}

    def shared(first: str, second: str, labels: dict[str, str]) -> bool:
        return (
            taken(named[first], labels)
            and taken(named[second], labels)
            and not taken(ignored, labels)
        )

    found = {
        (o.first, o.second): dict(o.node.labels)
        for o in selector_coverage.find_overlaps(named, ignored)
    }
    assert found.keys() == {
        pair for pair in combinations(named, 2) if any(shared(*pair, labels) for labels in UNIVERSE)
    }
    assert all(shared(*pair, labels) for pair, labels in found.items())


@given(own=st.lists(TERMS.filter(bool), min_size=1, max_size=3))
def test_variants_made_exclusive_take_each_node_once_and_lose_none(
    own: list[SelectorTerms],
) -> None:
    exclusive = [variants.without(terms, own[:index]) for index, terms in enumerate(own)]
    for labels in UNIVERSE:
        first = next((index for index, terms in enumerate(own) if taken(terms, labels)), None)
        assert [
            index for index, terms in enumerate(exclusive) if terms and taken(terms, labels)
        ] == ([] if first is None else [first])


@given(terms=TERMS)
def test_matches_agrees_with_the_label_selectors_of_kubernetes(terms: SelectorTerms) -> None:
    assert [selector_coverage.matches(terms, labels) for labels in UNIVERSE] == [
        taken(terms, labels) for labels in UNIVERSE
    ]


def test_numbers_between_two_bounds_are_distinguished() -> None:
    def term(operator: str, bound: str) -> SelectorTerms:
        return ((Requirement("cores", operator, (bound,)),),)

    assert (
        selector_coverage.find_gap(
            ((Requirement("cores", "In", ("7",)),),), [term("Gt", "8"), term("Lt", "8")]
        )
        is None
    )
    gap = selector_coverage.find_gap(
        ((Requirement("cores", "Gt", ("0",)),),), [term("Gt", "8"), term("Lt", "8")]
    )
    assert gap is not None
    assert gap.labels == {"cores": "8"}


def test_many_pools_stay_quick_to_prove() -> None:
    """Sixty disjoint pools over one key and forty over another: 2,541 combinations, but no product
    is ever built.
    """
    pools: list[SelectorTerms] = [((Requirement("pool", "In", (f"p{n}",)),),) for n in range(60)]
    types: list[SelectorTerms] = [((Requirement("type", "In", (f"t{n}",)),),) for n in range(40)]
    rest = variants.without(EVERYWHERE, [*pools, *types])
    assert rest is not None
    assert selector_coverage.find_gap(EVERYWHERE, [*pools, *types, rest]) is None


def test_a_witness_has_the_present_and_absent_labels_of_the_node() -> None:
    linux: SelectorTerms = ((Requirement("kubernetes.io/os", "In", ("linux",)),),)
    gap = selector_coverage.find_gap(((Requirement("pool", "In", ("gpu",)),),), [linux])
    assert str(gap) == "with pool=gpu, without kubernetes.io/os"


def test_an_empty_term_and_an_empty_list_of_terms_match_no_node() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for terms in ([], [{}], [{"matchExpressions": []}]):
        spec = {"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}}
        assert selector_coverage.terms_of(spec) == ()
    assert selector_coverage.terms_of({}) == EVERYWHERE
