"""What the commands do with charts and kustomizations: nothing runs in a check unless it is
allowed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gitops_ds.core.sources.repository_limits import NO_PROGRAMS, PROGRAMS, AllowedRenderers
from gitops_ds.service.settings import service
from tests import renderers
from tests.cli import commands
from tests.cli.test_fix import AGENT

pytestmark = pytest.mark.renderers


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Not in Git: an agent of a chart, and one of a kustomization."""
    root = tmp_path / "fleet"
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: built}\n"
    files = {"agents/b/kustomization.yaml": "resources: [c.yaml]\n", "agents/b/c.yaml": config}
    for name, text in renderers.repository(
        "helm:\n  chart: chart\n", {**renderers.chart(), **files}
    ).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def gitops_ds(repository: Path, *arguments: str) -> tuple[int, str]:
    """The command in a process of its own, with helm and kustomize on its PATH; its exit code, and
    all that it printed.
    """
    path = f"{renderers.programs()}:{os.environ['PATH']}"
    environment = {
        "PATH": path,
        "HOME": str(repository.parent),
        "GITOPS_DS_CACHE": str(repository.parent / "cache"),
    }
    command = [sys.executable, "-m", "gitops_ds", *arguments, "-C", str(repository)]
    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_check_runs_no_program_unless_it_is_allowed(repository: Path) -> None:
    code, output = gitops_ds(repository, "check", "--fail-on", "error")
    assert code == 1
    assert "agents/a/source.yaml:2:10" in output
    assert "--allow helm" in output
    assert "agents/b/kustomization.yaml" in output
    assert "--allow kustomize" in output
    assert not (repository.parent / "cache").exists()


def test_a_check_that_may_run_programs_reports_the_objects_at_their_lines(repository: Path) -> None:
    code, output = gitops_ds(repository, "check", "--allow", "helm,kustomize", "--fail-on", "error")
    assert code == 0, output
    assert "agents/a/chart/" in output  # advice about the chart's DaemonSet, at its own lines


@pytest.mark.parametrize("command", [["render"], ["plan", "--simulate", "3"]])
def test_commands_that_render_run_the_programs_unless_disallowed(
    repository: Path, command: list[str]
) -> None:
    code, output = gitops_ds(repository, *command)
    assert code == 0, output
    assert ("built" in output, "example.org/agent:4.5.6" in output or "DaemonSet" in output) == (
        True,
        True,
    )
    code, output = gitops_ds(repository, *command, "--allow", "none")
    assert "--allow helm" in output
    assert code == 1 or command[0] == "plan"


def test_an_unknown_program_cannot_be_allowed(repository: Path) -> None:
    code, output = gitops_ds(repository, "check", "--allow", "helm,sh")
    assert code == 2
    assert "'sh' can't be allowed: write helm, kustomize, network or none" in output


def test_the_service_is_allowed_by_its_settings() -> None:
    assert service.parse({}).allowed == PROGRAMS
    assert service.parse({"render": {"allow": []}}).allowed == NO_PROGRAMS
    assert service.parse({"render": {"allow": ["helm", "network"]}}).allowed == AllowedRenderers(
        helm=True, network=True
    )


@pytest.mark.parametrize("option", ["--fix", "--fix-unsafe"])
def test_output_of_helm_and_kustomize_is_not_fixed_and_a_message_has_the_reason(
    repository: Path, option: str
) -> None:
    (repository / "agents/b/c.yaml").write_text(AGENT)
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    _, output = gitops_ds(repository, "check", option, "--allow", "helm,kustomize")
    left = [line for line in output.splitlines() if line.startswith("not fixed ")]
    for folder in ("agents/a/chart/", "agents/b/"):
        mine = [line for line in left if line.startswith(f"not fixed {folder}")]
        assert mine, output
        ways = (
            "no single place in the files has the rendered value:",
            "helm or kustomize generates DaemonSet ",
        )
        assert all(any(way in line for way in ways) for line in mine), "\n".join(mine)
    assert "0 fixed in 0 files" in output
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == before


RANDOM, SECONDS, FIXED = "randAlphaNum 5 | quote", "now | unixEpoch | quote", '"info"'


@pytest.mark.parametrize(
    ("level", "archive", "places"),
    [
        (FIXED, False, []),
        (RANDOM, False, ["agents/a/chart/templates/ds.yaml:27:15"]),
        (SECONDS, False, ["agents/a/chart/templates/ds.yaml:27:15"]),
        (RANDOM, True, ["agents/a/source.yaml:2:3"]),
    ],
)
def test_a_chart_whose_output_differs_in_each_run_is_found_after_it_was_cached(
    tmp_path: Path, level: str, archive: bool, places: list[str]
) -> None:
    template = renderers.TEMPLATE.replace(".Values.level", level)
    chart = renderers.chart("agents/a/chart", templates__ds_DOT_yaml=template)
    if archive:
        own = {name.removeprefix("agents/a/chart/"): text for name, text in chart.items()}
        chart = {"agents/a/chart.tgz": renderers.packed(own)}
    source = f"helm:\n  chart: chart{'.tgz' * archive}\n"
    for name, content in renderers.repository(source, chart).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)
    path = f"{renderers.programs()}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as cache:
        for command in ("render", "check"):
            words = (command, "-C", tmp_path, "--allow", "helm", *["--all"] * (command == "check"))
            output = commands.invoked(*words, PATH=path, GITOPS_DS_CACHE=cache).stdout
    found = [line for line in output.splitlines() if "DS805" in line]
    assert [line.strip().split(": ")[0] for line in found] == places
