"""templates/check.yml: its script as a runner's shell runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from tests.agent_manifest import agent
from tests.ci_files import files
from tests.ci_files.conftest import Work

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.xdist_group("ci_files")]


def job(
    work: Work,
    environment: Mapping[str, str],
    builds: Path,
    path: str = ".",
    *,
    package: str = str(files.ROOT),
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """https://docs.gitlab.com/runner/shells/: the lines of the script one after the other, until
    one fails.
    """
    _, text = files.template(package=package, comment="true", path=path)
    (document,) = files.documents(text)
    own = document["gitops-ds-check"]
    script = "set -eo pipefail\n" + "\n".join(own["script"])
    variables = {name: str(value) for name, value in own["variables"].items()}
    return subprocess.run(
        ["bash", "-c", script],
        cwd=work.clone,
        env={
            **environment,
            **variables,
            "CI_PROJECT_DIR": str(work.clone),
            "TMPDIR": str(builds),
            **more,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def in_the_image(
    work: Work, environment: Mapping[str, str], builds: Path, path: str = "."
) -> subprocess.CompletedProcess[str]:
    """The job in an image that has gitops-ds: without the ten seconds of an installation."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    return job(work, {**environment, "PATH": programs}, builds, path, package="")


def rules(work: Work) -> set[str]:
    """What the report on code quality complains of."""
    return {
        entry["check_name"]
        for entry in json.loads((work.clone / ".gitops-ds/quality.json").read_text())
    }


def merge_request(base: str, sha: str) -> dict[str, str]:
    """The variables of a merge request's job; nothing answers at the address of its forge."""
    return {
        "CI_API_V4_URL": "http://127.0.0.1:9/api/v4",
        "CI_PROJECT_ID": "42",
        "CI_MERGE_REQUEST_IID": "7",
        "CI_COMMIT_SHA": sha,
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
        "GITLAB_TOKEN": "secret-token",
        "GITOPS_DS_TIMEOUT": "1",
    }


def test_a_merge_request_is_checked_reported_and_its_comment_requested(
    work: Work, wheels: Mapping[str, str], tmp_path: Path
) -> None:
    base = work.git("rev-parse", "HEAD")
    work.write("another")
    sha = work.commit("break it")
    done = job(work, wheels, tmp_path, **merge_request(base, sha))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "http://127.0.0.1:9/api/v4 can't be reached" in done.stderr
    assert "secret-token" not in done.stdout + done.stderr
    assert "gitops-ds/DS101" in rules(work)
    assert Xml.parse(work.clone / ".gitops-ds/junit.xml").getroot().tag == "testsuites"
    assert "changes" in json.loads((work.clone / ".gitops-ds/report.json").read_text())
    assert f"Checked `{sha[:12]}`" in (work.clone / ".gitops-ds/report.md").read_text()

    # Of the default branch, with and without findings.
    assert in_the_image(work, wheels, tmp_path).returncode == 1
    work.write("agent")
    mended = in_the_image(work, wheels, tmp_path)
    assert mended.returncode == 0, mended.stdout + mended.stderr
    assert "gitops-ds/DS101" not in rules(work)
    assert not list(tmp_path.glob("tmp.*"))


def test_nothing_of_a_hostile_tree_runs_and_nothing_is_written_through_its_links(
    work: Work, wheels: Mapping[str, str], tmp_path: Path
) -> None:
    """Reports as links to programs, a folder whose name is a command, a program and modules in the
    checkout, a bare repository.
    """
    base, marker, program = work.git("rev-parse", "HEAD"), tmp_path / "ran", tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    reports = work.clone / ".gitops-ds"
    reports.mkdir()
    for name in ("quality.json", "junit.xml", "report.md", "report.json"):
        (reports / name).symlink_to(program)
    folder = work.clone / f"agents/`touch {marker.name}`"
    folder.mkdir(parents=True)
    (folder / "bad.yaml").write_text(agent("bad", label="another"))
    for name in ("gitops-ds", "pip", "python3", "python"):
        (work.clone / name).write_text(f"#!/bin/sh\ntouch {marker}\n")
        (work.clone / name).chmod(0o755)
    for module in ("venv", "ensurepip", "pip", "json", "sitecustomize", "gitops_ds"):
        (work.clone / f"{module}.py").write_text(f"open({str(marker)!r}, 'w')")
    (work.clone / "away").symlink_to("/")
    sha = work.commit("hostile")
    done = job(work, wheels, tmp_path, **merge_request(base, sha))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "DS101" in done.stdout
    assert not reports.is_symlink()
    assert not any(path.is_symlink() for path in reports.iterdir())
    assert program.read_text() == "#!/bin/sh\n"
    assert in_the_image(work, wheels, tmp_path, path="away").returncode == 2
    assert not [path for path in (marker, work.clone / marker.name) if path.exists()]


def test_a_link_in_the_place_of_the_reports_is_replaced(
    work: Work, wheels: Mapping[str, str], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (work.clone / ".gitops-ds").symlink_to(elsewhere)
    work.commit("a link")
    assert in_the_image(work, wheels, tmp_path).returncode == 0
    assert [path.name for path in elsewhere.iterdir()] == ["kept"]
    assert (work.clone / ".gitops-ds/report.json").is_file()
