"""The tests of a group run on one worker, so that its programs are started once. Versions of pytest
and pytest-xdist that do not fit each other run them on all workers, without an error:
https://github.com/pytest-dev/pytest-xdist/issues/1386
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GROUPED = """
import pytest

@pytest.mark.xdist_group("programs")
@pytest.mark.parametrize("number", range(8))
def test_one(number):
    pass
"""


def test_the_tests_of_a_group_run_on_one_worker(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    words = ("-m", "pytest", "--verbose", "--numprocesses=2", "--dist=loadgroup")
    done = subprocess.run(
        (sys.executable, *words), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    workers = re.findall(r"^\[(gw\d)\].* PASSED ", done.stdout, re.MULTILINE)
    assert len(workers) == 8
    assert len(set(workers)) == 1, done.stdout
