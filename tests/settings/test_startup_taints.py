"""The group `startupTaints` of the settings."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.errors import SettingsError
from gitops_ds.core.live import Taint
from gitops_ds.core.startup_taints import Enforce, StartupTaintPolicy
from gitops_ds.service.settings import service


def policy(document: dict[str, Any]) -> StartupTaintPolicy | None:
    settings = service.parse(document).startup_taints
    return settings.policy if settings else None


def test_taints_are_removed_only_when_configured() -> None:
    assert policy({}) is None
    assert policy({"startupTaints": None}) == policy({"startupTaints": {}}) == StartupTaintPolicy()


def test_every_key_has_its_effect() -> None:
    document = {
        "taint": "example.com/starting:NoSchedule",
        "alsoRemove": ["node.cilium.io/agent-not-ready", "a:NoExecute"],
        "enforce": "continuous",
        "maxTainted": 3,
        "notReadyFor": "1m",
        "reportAfter": "1h",
        "mirrors": ["mirror.example.com/"],
    }
    parsed = policy({"startupTaints": document})
    assert parsed == StartupTaintPolicy(
        Taint("example.com/starting", "NoSchedule"),
        (Taint("node.cilium.io/agent-not-ready", ""), Taint("a", "NoExecute")),
        Enforce.CONTINUOUS,
        share=1.0,
        nodes=3,
        not_ready_for=60.0,
        report_after=3600.0,
        mirrors=("mirror.example.com/",),
    )
    assert parsed.most(1000) == 3
    assert StartupTaintPolicy().most(19) == 1


def test_continuous_evicts_no_pods() -> None:
    document = {"taint": "a:NoExecute", "enforce": "continuous"}
    with pytest.raises(SettingsError, match="NoSchedule"):
        policy({"startupTaints": document})


@pytest.mark.parametrize(
    ("rule", "taint", "covered"),
    [
        ("a", Taint("a", "NoSchedule"), True),
        ("a", Taint("a", "NoExecute", "x"), True),
        ("a:NoSchedule", Taint("a", "NoExecute"), False),
        ("b", Taint("a", "NoSchedule"), False),
    ],
)
def test_a_taint_without_an_effect_covers_every_effect(
    rule: str, taint: Taint, covered: bool
) -> None:
    parsed = policy({"startupTaints": {"taint": "own:NoSchedule", "alsoRemove": [rule]}})
    assert parsed is not None
    assert parsed.covers(taint) is covered
