"""The value of a plain YAML scalar in kubectl, which follows neither YAML 1.1 nor 1.2, but Go's
parser and JSON.

kubectl uses sigs.k8s.io/yaml: its own YAML 1.1 resolver, then JSON, where `1.0` becomes 1 and an
integer beyond 64 bits a float. The rules here were compared with kubectl 1.32 and 1.37 for every
text of tests/yaml/test_scalars.py. Sources: resolve.go and decode.go of sigs.k8s.io/yaml/goyaml.v2;
unstructured numbers in k8s.io/apimachinery/pkg/util/json.
"""

from __future__ import annotations

import math
import re
import struct

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"), True
    ),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"), False
    ),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_BOOLEANS_BOTH_READ = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})

_INTEGER = re.compile(
    r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))\Z"
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_FLOAT_FROM_POINT = re.compile(r"\.[0-9]+(?:[eE][-+]?[0-9]+)?\Z")
_MOST_DIGITS = 20
_ODD = re.compile(
    r"[-+]?0[0-9_]+\Z"  # octal in kubectl, decimal in YAML 1.2
    r"|[-+]?0[bB][01_]+\Z"
    r"|[-+]?[0-9][0-9a-fA-FxXoO]*_[0-9a-fA-F_.]*\Z"
    r"|[-+]?[0-9]+(?::[0-5]?[0-9])+(?:\.[0-9]*)?\Z"  # a number of base 60 in YAML 1.1
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?\Z"  # a date in YAML 1.1
)
_INT64 = 1 << 63


def read(text: str) -> Scalar:
    """The value of a plain scalar. Infinity and NaN are floats, although JSON lacks them: the
    caller refuses them.
    """
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first == ".":
        return _float(text) if _FLOAT_FROM_POINT.match(text) else text
    if first in "+-" or (first.isascii() and first.isdigit()):
        bare = text.replace("_", "")
        integer = _INTEGER.match(bare)
        if integer:
            value = _integer(*integer.groups())
            if value is not None:
                return value
        if _FLOAT.match(bare):
            value = _float(bare)
            return text if value is None else value
    return text


def ambiguous(text: str) -> bool:
    """Whether YAML 1.1, YAML 1.2 and kubectl differ in the value of this plain scalar."""
    if text in _WORDS:
        return isinstance(_WORDS[text], bool) and text not in _BOOLEANS_BOTH_READ
    return text[0] in "+-0123456789" and _ODD.match(text) is not None


def key(text: str) -> str | None:
    """The string of a plain mapping key; None if kubectl refuses it (null, an integer beyond 64
    bits).
    """
    value = read(text)
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float():
            if not _INTEGER.match(text.replace("_", "")):
                return _float_key(float(value))
            return str(value) if isinstance(value, int) else None


def _integer(
    sign: str, hexadecimal: str | None, binary: str | None, octal: str | None, decimal: str | None
) -> Scalar:
    """Go's ParseInt with base 0, then ParseUint; None if both overflow (a decimal number may still
    be a float).
    """
    # Python does not parse more than 4,300 digits; more than 20 overflow anyway.
    if (
        decimal
        and len(decimal) > _MOST_DIGITS
        and len(decimal := decimal.lstrip("0")) > _MOST_DIGITS
    ):
        return None
    size = (
        int(hexadecimal, 16)
        if hexadecimal
        else int(binary, 2)
        if binary
        else int(octal, 8)
        if octal
        else int(decimal or "0")
    )
    value = -size if sign == "-" else size
    if -_INT64 <= value < _INT64:
        return value
    return float(value) if value < 2 * _INT64 and not sign else None


def _float(text: str) -> Scalar:
    """A float after JSON: a whole number is an integer; None if out of range."""
    value = float(text)
    if math.isinf(value):
        return None
    return int(value) if value.is_integer() and abs(value) < _INT64 else value


def _float_key(value: float) -> str:
    """A float key as Go prints it: the fewest digits that are exact in 32 bits, with an exponent
    below -4 and from 6 on.
    """
    if math.isnan(value):
        return ".nan"
    try:
        short = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        short = math.copysign(math.inf, value)
    if math.isinf(short):
        return "-.inf" if short < 0 else ".inf"
    digits = next(
        n for n in range(10) if struct.pack("f", float(f"{short:.{n}e}")) == struct.pack("f", short)
    )
    exponent = int(f"{short:.{digits}e}".partition("e")[2])
    return f"{short:.{max(digits - exponent, 0)}f}" if -4 <= exponent < 6 else f"{short:.{digits}e}"
