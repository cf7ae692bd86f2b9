"""Resource quantities: their amount, and their canonical form.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/; the canonical form
follows staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go: no fraction, the largest exact
suffix, of the same family of suffixes.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor

BINARY = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4, "Pi": 1024**5, "Ei": 1024**6}
DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_BY_EXPONENT = {exponent: suffix for suffix, exponent in DECIMAL.items()}
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([KMGTPE]i)|([numkMGTPE]?)|[eE]([+-]?[0-9]+))\Z"
)


def parse(text: str | int | float) -> Fraction:
    """The exact amount, in units (cores, bytes, pieces). Raises ValueError for an invalid one."""
    return _parse(str(text).strip())[0]


def canonical(text: str | int | float, *, round_to_milli: bool = False) -> str:
    """The text that an API server stores: `0.1` is `100m`, `1024Mi` is `1Gi`, `1000` is `1k`.
    Raises ValueError.

    `round_to_milli`: amounts of resources are rounded up to a thousandth.
    """
    return _canonical(str(text).strip(), round_to_milli)


@lru_cache(1024)
def _canonical(text: str, round_to_milli: bool) -> str:
    amount, family = _parse(text)
    scale = 10**3 if round_to_milli else 10**9
    amount = _away_from_zero(amount * scale) / Fraction(scale)
    if amount == 0:
        return "0"
    if family == "binary" and abs(amount) >= 1024:
        return _binary(int(_away_from_zero(amount)))
    return _decimal(amount, exponent_form=family == "exponent")


@lru_cache(1024)  # manifests repeat the same few
def _parse(text: str) -> tuple[Fraction, str]:
    matched = _QUANTITY.match(text)
    if not matched:
        raise ValueError(
            f"{text!r} is not a valid quantity: write a number with an optional suffix "
            "(100m, 1, 64Mi, 2G)"
        )
    number, binary, decimal, exponent = matched.groups()
    if binary:
        return Fraction(number) * BINARY[binary], "binary"
    if exponent is not None:
        if abs(int(exponent)) > 1000:
            raise ValueError(f"{text!r} is not a valid quantity: its exponent is out of range")
        return Fraction(number) * Fraction(10) ** int(exponent), "exponent"
    return Fraction(number) * Fraction(10) ** DECIMAL[decimal or ""], "decimal"


def _away_from_zero(amount: Fraction) -> Fraction:
    return Fraction(ceil(amount) if amount > 0 else floor(amount))


def _binary(number: int) -> str:
    suffix = ""
    for larger in BINARY:
        if number % 1024:
            break
        number, suffix = number // 1024, larger
    return f"{number}{suffix}"


def _decimal(amount: Fraction, *, exponent_form: bool) -> str:
    number, exponent = int(amount * 10**9), -9
    while number % 1000 == 0 and exponent < 18:
        number, exponent = number // 1000, exponent + 3
    if exponent_form:
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{_DECIMAL_BY_EXPONENT[exponent]}"


def amount(resource: str, thousandths: int) -> str:
    """A quantity in its usual notation: `40m`, `64Mi`, `2`."""
    if resource == "cpu":
        return canonical(f"{thousandths}m")
    units = thousandths / 1000
    for suffix in ("Gi", "Mi", "Ki"):
        if units >= BINARY[suffix]:
            return f"{units / BINARY[suffix]:.4g}{suffix}"
    return f"{units:.4g}"
