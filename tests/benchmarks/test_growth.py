"""The exponents of the growth table, and its plot."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks import growth, growth_plot
from benchmarks.growth import Growth

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("power", [0.5, 1.0, 1.3, 2.0])
@pytest.mark.parametrize("factor", [0.001, 1.0, 40.0])
def test_the_exponent_of_a_power_is_the_power(power: float, factor: float) -> None:
    points = [(x, factor * x**power) for x in (50, 500, 5_000)]
    assert growth.exponent(points) == pytest.approx(power)


def test_a_start_is_not_growth() -> None:
    costs = {count: 0.4 + 0.002 * (count - 1) for count in (1, 100, 1_000, 10_000)}
    row = Growth("check", "s", costs, (1, costs[1]))
    assert row.exponent == pytest.approx(1.0)
    assert [x for x, _ in row.points] == [99, 999, 9_999]


def test_the_table_has_every_figure_with_its_unit() -> None:
    row = Growth("a decision, nodes: CPU", "ms", {50: 0.194, 500: 1.94, 5_000: 1234.4})
    assert growth.table([row]).splitlines() == [
        "| cost | measured | exponent |",
        "|---|---|---|",
        "| a decision, nodes: CPU | 50: 0.194; 500: 1.94; 5,000: 1,234 ms | 1.90 |",
    ]


def test_a_cost_that_grows_as_its_work_is_on_the_diagonal() -> None:
    lines = {"linear": [(50, 0.2), (500, 2.0), (5_000, 20.0)], "flat <&>": [(1, 3.0), (40, 3.0)]}
    root = ElementTree.fromstring(growth_plot.svg(lines))
    ways = [one.get("d", "") for one in root.iter(f"{SVG}path") if one.get("stroke-width")]
    diagonal, linear, flat = ([_point(step) for step in way[1:].split("L")] for way in ways)
    (left, bottom), (right, top) = diagonal
    for x, y in linear:
        assert (x - left) / (right - left) == pytest.approx((bottom - y) / (bottom - top), abs=0.01)
    assert {y for _, y in flat} == {bottom}
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert {"linear", "flat <&>", "1x", "10x", "100x"} < set(texts)


def _point(text: str) -> tuple[float, float]:
    x, y = map(float, text.split())
    return x, y
