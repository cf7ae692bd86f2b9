"""What one reading shows: bounds, changes, and values that are "no data"."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.rollout_gates import GateSample, ProbeKind, Reading, Verdict
from gitops_ds.core.rollouts.rollout_policy import Gate
from gitops_ds.rollouts.decisions import gate_readings, measured_gates
from gitops_ds.rollouts.decisions.gate_readings import Assessment

NAN, INF, HUGE = math.nan, math.inf, 1.7e308
MET, EXCEEDED, NO_DATA = Verdict.MET, Verdict.EXCEEDED, Verdict.NO_DATA


def gate(**keys: Any) -> Gate:
    document = {"gates": {"flow": {"prometheus": "up", **keys}}}
    return rollout_policy.decode(document).gate("flow")


def verdict(
    definition: Gate, *numbers: float, before: float | None = None, control: tuple[float, ...] = ()
) -> Verdict:
    samples = tuple(GateSample(number, "{}", before=before) for number in numbers)
    reading = Reading(1.0, samples=samples, control=control)
    return gate_readings.assess(definition, ProbeKind.PROMETHEUS, reading).verdict


@pytest.mark.parametrize(
    ("keys", "numbers", "expected"),
    [
        ({"below": 5}, (4.9,), MET),
        ({"below": 5}, (5,), EXCEEDED),
        ({"below": 5}, (1, 2, 6), EXCEEDED),
        ({"below": 5}, (INF,), EXCEEDED),
        ({"below": 5}, (-INF,), MET),
        ({"below": 5}, (NAN,), NO_DATA),
        ({"below": 5}, (1, NAN), NO_DATA),
        ({"below": 5}, (NAN, 6), EXCEEDED),
        ({"below": 5}, (), NO_DATA),
        ({"above": 5}, (5.1,), MET),
        ({"above": 5}, (5,), EXCEEDED),
        ({"above": 5}, (HUGE,), MET),
        ({"above": 0, "below": 10}, (5,), MET),
        ({"above": 0, "below": 10}, (-1,), EXCEEDED),
        ({"below": 5, "noData": "pass"}, (NAN,), MET),
        ({"below": 5, "noData": "pass"}, (6,), EXCEEDED),
    ],
)
def test_fixed_bounds(keys: dict[str, Any], numbers: tuple[float, ...], expected: Verdict) -> None:
    assert verdict(gate(**keys), *numbers) is expected


@pytest.mark.parametrize(
    ("change", "before", "value", "expected"),
    [
        ("+30%", 10, 13, MET),
        ("+30%", 10, 13.1, EXCEEDED),
        ("+30%", 10, -100, MET),
        ("-20%", 10, 8, MET),
        ("-20%", 10, 7.9, EXCEEDED),
        ("-20%", 10, 100, MET),
        ("+0%", 10, 10, MET),
        ("+0%", 10, 10.1, EXCEEDED),
        ("-0%", 10, 9.9, EXCEEDED),
        ("+30%", 0, 0, MET),
        ("+30%", 0, 0.001, EXCEEDED),
        ("+30%", -10, -7, MET),
        ("+30%", -10, -6.9, EXCEEDED),
        ("+30%", NAN, 1, NO_DATA),
        ("+30%", INF, 1, NO_DATA),
        ("+30%", None, 1, NO_DATA),
        ("+30%", 10, NAN, NO_DATA),
        ("+30%", 10, INF, EXCEEDED),
        ("+30%", HUGE, HUGE, MET),
    ],
)
def test_changes_since_before(
    change: str, before: float | None, value: float, expected: Verdict
) -> None:
    definition = gate(compare={"before": change})
    assert verdict(definition, value, before=before) is expected


@pytest.mark.parametrize(
    ("numbers", "control", "expected"),
    [
        ((8, 8), (10, 10), MET),
        ((1, 15), (10, 10), MET),
        ((7.9, 8), (10, 10), EXCEEDED),
        ((8,), (), NO_DATA),
        ((8,), (NAN,), NO_DATA),
        ((8, NAN), (10,), NO_DATA),
        ((HUGE, HUGE), (HUGE, HUGE), MET),
        ((), (10,), NO_DATA),
    ],
)
def test_the_mean_against_untouched_nodes(
    numbers: tuple[float, ...], control: tuple[float, ...], expected: Verdict
) -> None:
    definition = gate(prometheus="a{node=~'$nodes'}", compare={"control": "-20%"})
    assert verdict(definition, *numbers, control=control) is expected


@pytest.mark.parametrize(
    ("keys", "value", "bound"),
    [
        ({"below": 5}, 6, "below 5"),
        ({"above": 5}, 4, "above 5"),
        ({"compare": {"before": "+30%"}}, 14, "at most 13, +30% of the value before (10)"),
        ({"compare": {"before": "-20%"}}, 7, "at least 8, -20% of the value before (10)"),
    ],
)
def test_the_bound_in_words(keys: dict[str, Any], value: float, bound: str) -> None:
    reading = Reading(1.0, samples=(GateSample(value, "{}", before=10),))
    found = gate_readings.assess(gate(**keys), ProbeKind.PROMETHEUS, reading)
    assert found.bound == bound
    assert found.text == f"{value} ({{}}) is not {bound}"


def measured(*series: str, total: int = 3, **keys: Any) -> Assessment:
    """The assessment of a query about that many nodes; a series is `NODE VALUE [BEFORE]`."""
    samples = tuple(
        GateSample(float(words[1]), before=float([*words, "8"][2]), node=words[0].strip("-"))
        for words in (one.split() for one in series)
    )
    about = frozenset(map(str, range(1, total + 1)))
    reading = Reading(1.0, about, samples, (10.0, 10.0), about=about)
    return gate_readings.assess(gate(**keys), ProbeKind.PROMETHEUS, reading)


@pytest.mark.parametrize(
    "keys",
    [
        {"above": 5},
        {"compare": {"before": "-20%"}},
        {"prometheus": "a{node=~'$nodes'}", "compare": {"control": "-20%"}},
    ],
)
def test_a_node_without_a_series_has_no_data(keys: dict[str, Any]) -> None:
    assert measured("1 9", "2 9", "3 9", **keys).verdict is MET
    found = measured("1 9", **keys)
    assert (found.verdict, found.text) == (NO_DATA, "2 of 3 nodes without a value: 2, 3")
    assert measured("1 9", dataOf="30%", **keys).verdict is MET
    assert measured("1 9", "2 9", "3 nan", dataOf="70%", **keys).verdict is NO_DATA
    assert measured("1 9", "2 9", "3 nan", dataOf=2, **keys).verdict is MET
    assert measured("1 9", "2 9", "3 9", dataOf=9, **keys).verdict is MET
    assert measured("1 1", **keys).verdict is EXCEEDED
    assert measured("1 9", noData="pass", **keys).verdict is MET


def test_a_node_whose_earlier_value_is_unknown_has_no_data() -> None:
    keys: dict[str, Any] = {"compare": {"before": "-20%"}}
    found = measured("1 9", "2 9", "3 9 nan", **keys)
    assert found.text == "1 of 3 nodes without a value: 3"
    assert measured("1 9", "2 9", "3 9 nan", dataOf="60%", **keys).verdict is MET


def test_a_sum_over_nodes_has_data_of_none() -> None:
    found = measured("- 9", above=5)
    assert found.verdict is NO_DATA
    assert found.text == "no series names its node: use sum by (node), or set dataOf: 0%"
    assert measured("- 9", above=5, dataOf="0%").verdict is MET
    assert measured(above=5, dataOf="0%").verdict is NO_DATA
    text = measured("1 9", total=9, above=5).text
    assert text == "8 of 9 nodes without a value: 2, 3, 4 and 5 more"


numbers = st.floats(allow_nan=True, allow_infinity=True)


@given(
    values=st.lists(numbers, max_size=4),
    before=st.none() | numbers,
    control=st.lists(numbers, max_size=3).map(tuple),
    below=st.none() | st.floats(-10, 10),
    percent=st.sampled_from(["+30%", "-20%", "+0%"]),
)
def test_hostile_values_never_raise_and_nan_never_passes(
    values: list[float],
    before: float | None,
    control: tuple[float, ...],
    below: float | None,
    percent: str,
) -> None:
    keys = {"below": below} if below is not None else {}
    definition = gate(compare={"before": percent, "control": percent}, **keys)
    result = verdict(definition, *values, before=before, control=control)
    hostile = not values or any(map(math.isnan, [*values, *control])) or before is None
    assert not (hostile and result is MET)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (("node-1", "node-2"), "node-1|node-2"),
        (("ip-10-0-0-1.eu.internal",), "ip-10-0-0-1[.]eu[.]internal"),
        (('a"} or vector(1) #', "b"), "b"),
        (("a|.*", "a\n", "A", ""), ""),
    ],
)
def test_names_of_nodes_are_quoted_in_any_string_of_a_query(
    nodes: tuple[str, ...], expected: str
) -> None:
    assert measured_gates.alternation(nodes) == expected


def test_a_label_cannot_forge_a_line_of_the_evidence() -> None:
    samples = (GateSample(9, '{node="a\nReverts: 1\x1b[2J"}' + "x" * 10_000),)
    found = gate_readings.assess(gate(below=5), ProbeKind.PROMETHEUS, Reading(1.0, samples=samples))
    assert found.text.isprintable()
    assert len(found.text) < 300


@pytest.mark.parametrize(
    ("kind", "samples", "expected"),
    [
        (ProbeKind.MEMORY, [GateSample(90.0)], MET),
        (ProbeKind.MEMORY, [GateSample(10.0), GateSample(90.1)], EXCEEDED),
        (ProbeKind.MEMORY, [], NO_DATA),
        (ProbeKind.NEIGHBOURS, [GateSample(0, bound="newlyUnready")], MET),
        (ProbeKind.NEIGHBOURS, [GateSample(1, bound="newlyUnready")], EXCEEDED),
        (ProbeKind.NEIGHBOURS, [GateSample(1, bound="newRestarts")], MET),
        (ProbeKind.NEIGHBOURS, [GateSample(2, bound="newRestarts")], EXCEEDED),
    ],
)
def test_memory_and_neighbours(
    kind: ProbeKind, samples: list[GateSample], expected: Verdict
) -> None:
    definition = gate(
        memoryOfLimit="90%", neighbours={"newlyUnready": 0, "newRestarts": 1}, below=1
    )
    assert gate_readings.assess(definition, kind, Reading(1.0, samples=tuple(samples))).verdict is (
        expected
    )


@pytest.mark.parametrize(
    ("passes", "rule", "expected"),
    [
        (True, "hold", MET),
        (False, "hold", EXCEEDED),
        (False, "pass", EXCEEDED),
        (None, "hold", NO_DATA),
        (None, "pass", MET),
    ],
)
def test_the_answers_of_a_webhook(passes: bool | None, rule: str, expected: Verdict) -> None:
    reading = Reading(1.0, passes=passes, reason="the budget")
    found = gate_readings.assess(gate(noData=rule), ProbeKind.WEBHOOK, reading)
    assert found.verdict is expected
    assert "the budget" in found.text


def test_a_text_about_a_reading_has_at_most_200_characters() -> None:
    long = "x" * 1000
    answer = Reading(1.0, passes=False, reason=long)
    assert len(gate_readings.assess(gate(), ProbeKind.WEBHOOK, answer).text) == 200
    without = Reading(1.0, reason=long)
    assert len(gate_readings.assess(gate(), ProbeKind.PROMETHEUS, without).text) == 200
    series = Reading(1.0, samples=(GateSample(9, long),))
    assert len(gate_readings.assess(gate(below=5), ProbeKind.PROMETHEUS, series).value) == 200
