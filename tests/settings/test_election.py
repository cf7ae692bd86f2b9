"""Times of an election that would make two leaders possible are refused."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.errors import SettingsError
from gitops_ds.kube.client.leader_election import LeaseTiming
from gitops_ds.service.settings import service
from gitops_ds.service.settings.base import decode
from gitops_ds.service.settings.service import ElectionSettings


@pytest.mark.parametrize(
    ("document", "timing"),
    [
        ({}, LeaseTiming()),
        (
            {"duration": "15s", "renewDeadline": "10s", "retryPeriod": "2s"},
            LeaseTiming(15.0, 10.0, 2.0),
        ),
        ({"duration": "10s", "renewDeadline": "9s"}, LeaseTiming(10.0, 9.0, 2.0)),
        (
            {"duration": "1s", "renewDeadline": "800ms", "retryPeriod": "400ms"},
            LeaseTiming(1.0, 0.8, 0.4),
        ),
    ],
)
def test_times_with_a_margin_are_accepted(document: dict[str, Any], timing: LeaseTiming) -> None:
    assert decode(ElectionSettings, document).timing == timing


@pytest.mark.parametrize(
    "document",
    [
        {"duration": "900ms", "renewDeadline": "500ms", "retryPeriod": "100ms"},
        {"duration": "10s", "renewDeadline": "9100ms"},
        {"duration": "5s"},
        {"renewDeadline": "3s"},
        {"retryPeriod": "4s"},
        {"duration": "soon"},
    ],
)
def test_times_without_a_margin_are_rejected_with_a_message(document: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"duration"):
        service.parse({"election": document})


def test_by_default_an_election_is_held_only_in_a_pod() -> None:
    assert decode(ElectionSettings, {}).enabled is None
    assert decode(ElectionSettings, {"enabled": False}).held is False
    assert decode(ElectionSettings, {"enabled": True}).held is True
    assert decode(ElectionSettings, {"lease": "other"}).lease == "other"
