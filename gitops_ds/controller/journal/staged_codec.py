"""The turn of a staged rollout as plain data of a journal's line, and back. Pure.

The policy, the target, its record and the approvals are in the objects of the observation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from gitops_ds.controller.journal.delta import JsonTree
from gitops_ds.model.daemonset import PodCause
from gitops_ds.model.rollouts.rollout_gates import Probe, Reading
from gitops_ds.model.rollouts.staged_turn import OutsideInputs, StagedTurn, StagesOutcome


class _JournaledReading(msgspec.Struct, frozen=True):
    probe: Probe
    reading: Reading


def tree(turn: StagedTurn | None) -> JsonTree:
    """The inputs from outside, for the differences of lines; empty for any other turn."""
    if turn is None:
        return {}
    outside = turn.outside
    return {
        "owned": turn.owned,
        "readings": {
            probe.key: _plain(_JournaledReading(probe, reading))
            for probe, reading in outside.readings.items()
        },
        "behind": {
            agent: None if nodes is None else sorted(nodes)
            for agent, nodes in outside.behind.items()
        },
        "busy": dict.fromkeys(sorted(outside.busy), True),
        "refused": outside.refused,
        "refusedUntil": outside.refused_until,
        "haltedElsewhere": outside.halted_elsewhere,
        "atOnce": outside.at_once,
        "warnings": _plain(outside.warnings),
    }


def turn(data: Mapping[str, Any], outcome: Any) -> StagedTurn | None:
    """The turn from plain data; None for any other turn. Raises the errors of msgspec and of
    mappings.
    """
    if not data:
        return None
    measured = [
        msgspec.convert(one, _JournaledReading, strict=False) for one in data["readings"].values()
    ]
    behind = msgspec.convert(data["behind"], dict[str, frozenset[str] | None])
    outside = OutsideInputs(
        readings={one.probe: one.reading for one in measured},
        behind=behind,
        busy=frozenset(data["busy"]),
        refused=str(data["refused"]),
        refused_until=msgspec.convert(data["refusedUntil"], float | None),
        halted_elsewhere=str(data["haltedElsewhere"]),
        at_once=msgspec.convert(data["atOnce"], int | None),
        warnings=msgspec.convert(data.get("warnings") or {}, dict[str, PodCause]),
    )
    return StagedTurn(outside, bool(data["owned"]), msgspec.convert(outcome, StagesOutcome))


def _plain(value: Any) -> Any:
    """The form in a line, so that the differences of lines compare equal types. JSON lacks NaN and
    infinity: they are strings.
    """
    return _finite(msgspec.to_builtins(value, order="deterministic"))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
