"""The costs of five works stay those that are recorded."""

from __future__ import annotations

import json

import pytest

from benchmarks import costs


@pytest.mark.slow
def test_no_work_makes_a_tenth_more_function_calls_than_recorded() -> None:
    """Nor a fifth less: a gain is recorded, with `python -m benchmarks costs`, so that it stays."""
    recorded = json.loads(costs.RECORDED.read_text())
    ratios = {work: count / recorded[work] for work, count in costs.costs().items()}
    assert {work: ratio for work, ratio in ratios.items() if not 0.8 <= ratio <= 1.1} == {}


def test_calls_of_functions_are_counted_with_those_of_c() -> None:
    assert costs.calls(lambda: len("")) == costs.calls(lambda: None) + 1
