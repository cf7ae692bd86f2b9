"""Plain scalars mean what they mean to kubectl: each row was printed by kubectl (1.32 and 1.37
agree).
"""

from __future__ import annotations

import json
import subprocess

import pytest

from gitops_ds.yaml import scalars
from tests import controlplane

VALUES = [
    ("yes", True),
    ("on", True),
    ("Off", False),
    ("y", True),
    ("n", False),
    ("Y", True),
    ("N", False),
    ("NO", False),
    ("No", False),
    ("True", True),
    ("TRUE", True),
    ("tRUE", "tRUE"),
    ("true", True),
    ("~", None),
    ("null", None),
    ("Null", None),
    ("NULL", None),
    ("nULL", "nULL"),
    ("0644", 420),
    ("010", 8),
    ("012", 10),
    ("08", 8),
    ("09", 9),
    ("0o14", 12),
    ("0o8", "0o8"),
    ("0O14", 12),
    ("0b101", 5),
    ("0b2", "0b2"),
    ("0x1F", 31),
    ("0X1f", 31),
    ("0xg", "0xg"),
    ("1_000", 1000),
    ("_1", "_1"),
    ("1_", 1),
    ("0_1", 1),
    ("0x_1", 1),
    ("1__0", 10),
    ("1e3", 1000),
    ("1E3", 1000),
    ("1e+3", 1000),
    ("1.5e3", 1500),
    ("1e400", "1e400"),
    ("-1e400", "-1e400"),
    ("1e-400", 0),
    (".5", 0.5),
    ("-.5", -0.5),
    ("+.5", 0.5),
    ("5.", 5),
    (".", "."),
    ("+1", 1),
    ("-1", -1),
    ("-0", 0),
    ("+0", 0),
    ("+", "+"),
    ("--", "--"),
    ("1:30", "1:30"),
    ("12:30:45", "12:30:45"),
    ("1:30.5", "1:30.5"),
    ("190:20:30.15", "190:20:30.15"),
    ("2026-01-01", "2026-01-01"),
    ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00Z"),
    ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
    ("=", "="),
    ("<<", "<<"),
    ("inf", "inf"),
    ("nan", "nan"),
    ("9223372036854775807", 9223372036854775807),
    ("9223372036854775808", 9.223372036854776e18),
    ("18446744073709551615", 1.8446744073709552e19),
    ("18446744073709551616", 1.8446744073709552e19),
    ("-9223372036854775808", -9223372036854775808),
    ("-9223372036854775809", -9.223372036854776e18),
    ("1.0", 1),
    ("1.10", 1.1),
    ("100000000000000000000", 1e20),
    ("1e21", 1e21),
    ("1e20", 1e20),
    ("123456789.123456789", 123456789.12345679),
    ("0.1", 0.1),
    ("-010", -8),
    ("+010", 8),
    ("-0x1f", -31),
    ("+0x1F", 31),
    ("-0b1", -1),
    ("-0o14", -12),
    ("+0o14", 12),
    ("0.0", 0),
    ("-0.0", 0),
    ("00", 0),
    ("000", 0),
    ("0644.5", 644.5),
    ("1.e3", 1000),
    (".e3", ".e3"),
    ("1e", "1e"),
    ("0e0", 0),
    ("0x", "0x"),
    ("0b", "0b"),
    ("0o", "0o"),
    ("1.2.3", "1.2.3"),
    ("1_000.5", 1000.5),
    ("1_0e1_0", 100000000000),
    ("6.8523015e+5", 685230.15),
    ("685.230_15e+03", 685230.15),
    ("0777777777777777777777777", 7.777777777777778e23),
    ("0xFFFFFFFFFFFFFFFF", 1.8446744073709552e19),
    ("0xFFFFFFFFFFFFFFFFF", "0xFFFFFFFFFFFFFFFFF"),
    ("0b_1", 1),
    ("-_1", -1),
    ("1e1000", "1e1000"),
    ("0x1p4", "0x1p4"),
    ("0x1.8", "0x1.8"),
    ("1,000", "1,000"),
    ("1d", "1d"),
    ("1L", "1L"),
    ("①", "①"),
    ("\uff11", "\uff11"),
    ("0_", 0),
    ("0__7", 7),
    ("0_8", 8),
    ("-08", -8),
    ("1e5_", 100000),
    ("1_e5", 100000),
    ("1._5", 1.5),
    ("1.5_", 1.5),
    ("0.1e1", 1),
    ("000.5", 0.5),
    ("0e", "0e"),
    ("0x1e3", 483),
    ("-.nan", "-.nan"),
]

KEYS = [
    ("yes", "true"),
    ("off", "false"),
    ("y", "true"),
    ("1", "1"),
    ("010", "8"),
    ("0x10", "16"),
    ("1.0", "1"),
    ("1.5", "1.5"),
    ("1e3", "1000"),
    ("1e5", "100000"),
    ("1e6", "1e+06"),
    ("1e20", "1e+20"),
    ("1e-7", "1e-07"),
    ("0.0001", "0.0001"),
    ("123456789.5", "1.2345679e+08"),
    ("999999.99", "1e+06"),
    ("1e300", ".inf"),
    (".inf", ".inf"),
    (".nan", ".nan"),
    ("2026-01-01", "2026-01-01"),
    ("=", "="),
    ("a.b/c", "a.b/c"),
    ("~", None),
    ("null", None),
    ("18446744073709551615", None),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_a_plain_scalar_is_read_as_kubectl_reads_it(text: str, value: scalars.Scalar) -> None:
    read = scalars.read(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(("text", "name"), KEYS)
def test_a_plain_key_becomes_the_text_of_kubectl(text: str, name: str | None) -> None:
    assert scalars.key(text) == name


# Whether readers resolve a scalar differently.
AMBIGUOUS = {
    True: "yes on y No 0644 08 1_000 0b101 12:30:45 1:30 2026-01-01 010",
    False: "true False null 1 -1 1.5 10 text 0 0x1F v1 1.2.3 10Mi a:b",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [(text, expected) for expected, words in AMBIGUOUS.items() for text in words.split()],
)
def test_a_scalar_that_readers_resolve_differently_is_ambiguous(text: str, expected: bool) -> None:
    assert scalars.ambiguous(text) is expected


def _as_unstructured(digits: str) -> int | float:
    """Integers beyond 64 bits are floats to Kubernetes."""
    return int(digits) if -(1 << 63) <= int(digits) < 1 << 63 else float(digits)


@pytest.mark.controlplane
def test_kubectl_itself_still_reads_so() -> None:
    """One list item a row: kubectl prints JSON of what it read, without asking a server."""
    texts = [text for text, _ in VALUES]
    body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  all:\n" + "".join(
        f"  - {text}\n" for text in texts
    )
    kubectl = controlplane.programs() / "kubectl"
    printed = subprocess.run(
        [kubectl, "label", "--local", "-o", "json", "-f", "-", "x=y"],
        input=body,
        capture_output=True,
        text=True,
        check=True,
    )
    seen = json.loads(printed.stdout, parse_int=_as_unstructured)["data"]["all"]
    assert [
        (text, one) for text, one in zip(texts, seen, strict=True) if one != scalars.read(text)
    ] == []
