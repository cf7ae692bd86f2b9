"""Quantities are stored as the API server stores them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.kube.apimachinery import quantities

STORED = [
    ("0", "0"), ("0.1", "100m"), ("1000m", "1"), ("1500m", "1500m"), ("1000", "1k"),
    ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("0.5Ki", "512"), ("1e3", "1e3"), ("12e6", "12e6"),
    ("100M", "100M"), ("0.0000000001", "1n"), ("-1", "-1"), ("1E", "1E"),
    (".5", "500m"), ("1.", "1"), (2, "2"), (0.25, "250m"), ("+3", "3"), ("64Mi", "64Mi"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "stored"), STORED)
def test_a_quantity_has_one_stored_text(written: str | float, stored: str) -> None:
    assert quantities.canonical(written) == stored


def test_amounts_of_resources_are_rounded_up_to_a_thousandth() -> None:
    assert quantities.canonical("100u", round_to_milli=True) == "1m"


@pytest.mark.parametrize("text", ["", "64mi", "1 Gi", "ten", "1e", "0x10", "1e99999", "--1"])
def test_an_invalid_quantity_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid quantity"):
        quantities.canonical(text)


@given(st.integers(0, 10**12), st.sampled_from([*quantities.BINARY, *quantities.DECIMAL]))
def test_the_stored_text_amounts_to_the_same_and_stays(number: int, suffix: str) -> None:
    stored = quantities.canonical(f"{number}{suffix}")
    assert quantities.parse(stored) == quantities.parse(f"{number}{suffix}")
    assert quantities.canonical(stored) == stored


def test_fractions_are_exact() -> None:
    assert quantities.parse("0.1") == Fraction(1, 10)
