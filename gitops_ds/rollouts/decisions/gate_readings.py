"""The verdict of one reading of a measured gate: whether a bound is exceeded, or data is missing.

1. Every series must be within every bound; a single other one exceeds the gate.
2. NaN counts as missing data. An infinite value is a value, but nothing can be compared with it.
3. `before` compares each series with the same series before the first touch. `control` compares the
   mean over the touched nodes with the mean over untouched ones: nodes differ, and by more than a
   template changes.
4. A change of +30% permits 1.3 times the base; of a negative base it permits 0.7 times.
5. A measurement by nodes needs a value of each of them, or of the share `dataOf` of the policy: a
   node without a series, or whose values can't be compared, has no data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeGuard

import msgspec

from gitops_ds.core.plain_text import counted, line, listed
from gitops_ds.core.rollouts.rollout_gates import GateSample, ProbeKind, Reading, Verdict
from gitops_ds.core.rollouts.rollout_policy import Gate, PercentChange
from gitops_ds.core.values import replace

_LONGEST = 200  # characters of a text about a reading
_SHOWN = 3  # nodes without data in it


class Assessment(msgspec.Struct, frozen=True):
    """A verdict, with the value and its bound as text; without data `text` is the cause."""

    verdict: Verdict
    value: str = ""
    bound: str = ""
    text: str = ""


class _Compared(msgspec.Struct, frozen=True):
    """A value, its limit, and the direction of the limit."""

    value: float
    limit: float
    is_upper: bool
    is_strict: bool
    labels: str
    bound: str

    @property
    def is_exceeded(self) -> bool:
        if self.is_strict and self.value == self.limit:
            return True
        return self.value > self.limit if self.is_upper else self.value < self.limit


class _Missing(Exception):
    """No value to compare, for a reason."""


def assess(gate: Gate, kind: ProbeKind, reading: Reading) -> Assessment:
    """The verdict of a reading; without data it is met if the policy has `noData: pass`."""
    assessment = _assess(gate, kind, reading)
    if assessment.verdict is Verdict.NO_DATA and gate.no_data == "pass" and not reading.unavailable:
        return Assessment(Verdict.MET, text=f"no data ({assessment.text})")
    return assessment


def _assess(gate: Gate, kind: ProbeKind, reading: Reading) -> Assessment:
    if kind is ProbeKind.WEBHOOK and reading.passes is not None:
        verdict = Verdict.MET if reading.passes else Verdict.EXCEEDED
        text = line(reading.reason, _LONGEST) or "the webhook gives no reason"
        return Assessment(verdict, text, text=text)
    reading, missing = _with_data(gate, reading)
    compared = list[_Compared]()
    for comparison in _comparisons(gate, kind, reading):
        if isinstance(comparison, _Compared):
            compared.append(comparison)
        else:
            missing = missing or str(comparison)
    exceeded = [comparison for comparison in compared if comparison.is_exceeded]
    if exceeded:
        return _exceeded(exceeded)
    if missing or not compared:
        return Assessment(Verdict.NO_DATA, text=line(missing or "no series", _LONGEST))
    return Assessment(Verdict.MET)


def _with_data(gate: Gate, reading: Reading) -> tuple[Reading, str]:
    """The reading without the nodes that have no data, or the reason if too few have data."""
    missing = {sample.node for sample in reading.samples if _has_no_value(gate, sample)}
    having = {sample.node for sample in reading.samples} - missing
    lacking = sorted(reading.about - having)
    total = len(reading.about)
    if reading.reason or total - len(lacking) < min(total, gate.data_of.of(total)):
        return reading, reading.reason or _lacking(lacking, reading)
    samples = tuple(sample for sample in reading.samples if sample.node not in lacking)
    return replace(reading, samples=samples), ""


def _has_no_value(gate: Gate, sample: GateSample) -> bool:
    compares = gate.compare.before is not None
    return math.isnan(sample.value) or (compares and not _is_base(sample.before))


def _is_base(value: float | None) -> TypeGuard[float]:
    """Whether a change is relative to this value."""
    return value is not None and math.isfinite(value)


def _lacking(nodes: Sequence[str], reading: Reading) -> str:
    if reading.samples and not any(sample.node for sample in reading.samples):
        return "no series names its node: use sum by (node), or set dataOf: 0%"
    total = counted(len(reading.about), "node")
    return f"{len(nodes)} of {total} without a value: {listed(nodes, _SHOWN)}"


def _exceeded(exceeded: Sequence[_Compared]) -> Assessment:
    first = exceeded[0]
    more = f", and {len(exceeded) - 1} more" if len(exceeded) > 1 else ""
    value = line(f"{first.value:g}{f' ({first.labels})' if first.labels else ''}", _LONGEST)
    text = f"{value} is not {first.bound}{more}"
    return Assessment(Verdict.EXCEEDED, value, first.bound, text)


def _comparisons(gate: Gate, kind: ProbeKind, reading: Reading) -> Iterator[_Compared | _Missing]:
    match kind:
        case ProbeKind.PROMETHEUS:
            for sample in reading.samples:
                if math.isnan(sample.value):
                    yield _Missing(f"NaN {sample.labels}".rstrip())
                else:
                    yield from _fixed(gate, sample)
                    yield from _before(gate, sample)
            yield from _control(gate, reading)
        case ProbeKind.MEMORY if gate.memory_of_limit is not None:
            limit = gate.memory_of_limit.amount
            for sample in reading.samples:
                bound = f"at most {limit:g}% of the memory limit"
                yield _Compared(sample.value, limit, True, False, sample.labels, bound)
        case ProbeKind.NEIGHBOURS:
            most = {
                "newlyUnready": gate.neighbours.newly_unready,
                "newRestarts": gate.neighbours.new_restarts,
            }
            for sample in reading.samples:
                allowed = most.get(sample.bound)
                if allowed is not None:
                    bound = f"at most {allowed} {sample.bound}"
                    yield _Compared(sample.value, allowed, True, False, sample.labels, bound)
        case ProbeKind.WEBHOOK | ProbeKind.MEMORY:
            pass


def _fixed(gate: Gate, sample: GateSample) -> Iterator[_Compared]:
    if gate.below is not None:
        bound = f"below {gate.below:g}"
        yield _Compared(sample.value, gate.below, True, True, sample.labels, bound)
    if gate.above is not None:
        bound = f"above {gate.above:g}"
        yield _Compared(sample.value, gate.above, False, True, sample.labels, bound)


def _before(gate: Gate, sample: GateSample) -> Iterator[_Compared | _Missing]:
    if gate.compare.before is None:
        return
    if not _is_base(sample.before):
        yield _Missing(f"no value before the rollout {sample.labels}".rstrip())
        return
    yield _changed(
        sample.value, sample.before, gate.compare.before, "the value before", sample.labels
    )


def _control(gate: Gate, reading: Reading) -> Iterator[_Compared | _Missing]:
    if gate.compare.control is None or not reading.samples:
        return
    base, value = _mean(reading.control), _mean([sample.value for sample in reading.samples])
    if not math.isfinite(base):
        yield _Missing("no value of untouched nodes")
    elif not math.isnan(value):
        yield _changed(value, base, gate.compare.control, "the mean of untouched nodes", "mean")


def _mean(values: Sequence[float]) -> float:
    """The mean; NaN without values. Infinite values and overflows are not errors."""
    return sum(value / len(values) for value in values) if values else math.nan


def _changed(value: float, base: float, change: PercentChange, name: str, labels: str) -> _Compared:
    limit = base + abs(base) * change / 100
    is_upper = math.copysign(1.0, change) > 0
    side = "at most" if is_upper else "at least"
    bound = f"{side} {limit:g}, {change:+g}% of {name} ({base:g})"
    return _Compared(value, limit, is_upper, False, labels, bound)
