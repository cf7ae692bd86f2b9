"""Work that ended the process twice is not begun again; what was cut off once, or long ago, is."""

from __future__ import annotations

import os
from pathlib import Path

from gitops_ds.service import prepare_process


def test_the_third_attempt_is_refused_until_one_ends_or_an_hour_is_over(tmp_path: Path) -> None:
    notes = tmp_path / "attempts"
    assert [prepare_process.begin_attempt(notes, "a") for _ in range(3)] == [True, True, False]
    assert prepare_process.begin_attempt(notes, "b")
    prepare_process.end_attempt(notes, "a")
    assert prepare_process.begin_attempt(notes, "a")
    assert prepare_process.begin_attempt(notes, "a")
    os.utime(notes / "a", (0, 0))
    assert prepare_process.begin_attempt(notes, "a")


def test_notes_that_cannot_be_written_hold_up_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert prepare_process.begin_attempt(tmp_path / "file" / "attempts", "a")
    prepare_process.end_attempt(tmp_path / "file" / "attempts", "a")
