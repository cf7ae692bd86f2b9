"""The settings file: what it means, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops_ds.errors import SettingsError
from gitops_ds.settings import service


@pytest.mark.parametrize(("said", "seconds"), [("", 20.0), ("jitter: 25%", 50.0), ("jitter: 7", 7.0)])
def test_jitter_is_a_share_of_the_interval_or_seconds(tmp_path: Path, said: str, seconds: float) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"repository:\n  url: https://example.com/a\n  interval: 200s\n  {said}\n")
    assert service.read(str(file)).repository.jitter == seconds


def test_a_typo_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("repository:\n  url: https://example.com/a\n  intervall: 5s\n")
    with pytest.raises(SettingsError, match=r"settings\.yaml:3:3: .*interval"):
        service.read(str(file))
