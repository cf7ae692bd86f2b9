"""templates/check.yml: its script as a runner's shell runs it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from tests.ci_files import files
from tests.ci_files.conftest import Work

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("ci_files")]


def job(work: Work, environment: Mapping[str, str], builds: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """https://docs.gitlab.com/runner/shells/: the lines of the script one after the other, until one fails."""
    _, text = files.template(package=str(files.ROOT), comment="true")
    (document,) = files.documents(text)
    own = document["gitops-ds-check"]
    script = "set -eo pipefail\n" + "\n".join(own["script"])
    variables = {name: str(value) for name, value in own["variables"].items()}
    return subprocess.run(
        ["bash", "-c", script],
        cwd=work.clone,
        env={**environment, **variables, "CI_BUILDS_DIR": str(builds), **more},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


def rules(work: Work) -> set[str]:
    """What the report on code quality complains of."""
    return {one["check_name"] for one in json.loads((work.clone / ".gitops-ds/quality.json").read_text())}


def test_a_merge_request_is_checked_reported_and_its_comment_asked_for(
    work: Work, wheels: Mapping[str, str], tmp_path: Path
) -> None:
    base = work.git("rev-parse", "HEAD")
    work.write("another")
    sha = work.commit("break it")
    there = {
        "CI_API_V4_URL": "http://127.0.0.1:9/api/v4", "CI_PROJECT_ID": "42", "CI_MERGE_REQUEST_IID": "7", "CI_COMMIT_SHA": sha,
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base, "GITLAB_TOKEN": "secret-token", "GITOPS_DS_TIMEOUT": "1",
    }  # fmt: skip
    done = job(work, wheels, tmp_path, **there)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "http://127.0.0.1:9/api/v4 can't be reached" in done.stderr
    assert "secret-token" not in done.stdout + done.stderr
    assert "gitops-ds/DS101" in rules(work)
    assert Xml.parse(work.clone / ".gitops-ds/junit.xml").getroot().tag == "testsuites"
    assert "changes" in json.loads((work.clone / ".gitops-ds/report.json").read_text())
    assert f"Checked `{sha[:12]}`" in (work.clone / ".gitops-ds/report.md").read_text()

    # The installed program serves the jobs that follow: of the default branch, with and without findings.
    assert job(work, wheels, tmp_path).returncode == 1
    work.write("agent")
    mended = job(work, wheels, tmp_path)
    assert mended.returncode == 0, mended.stdout + mended.stderr
    assert "gitops-ds/DS101" not in rules(work)
