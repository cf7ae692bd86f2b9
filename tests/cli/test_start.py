"""The program starts quickly, and the wheel brings all that it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gitops_ds.kube.apimachinery import kubernetes_versions
from tests.cluster import program

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "kubernetes",
    "git",
    "aiohttp",
    "jsonschema",
    "apscheduler",
    "rich",
    "ruamel",
    "prometheus_client",
}
LIST_MODULES = """
import sys, json
sys.argv = ["gitops-ds", *{arguments!r}]
from gitops_ds.cli import main
try:
    main()
except SystemExit as end:
    packages = sorted({{name.partition(".")[0] for name in sys.modules}})
    print(json.dumps([end.code, packages]), file=sys.stderr)
"""


def modules_after(*arguments: str) -> tuple[int, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", LIST_MODULES.format(arguments=arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    code, names = json.loads(done.stderr.splitlines()[-1])
    return code, set(names)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["version"], ["apply", "--help"], ["run", "--help"], ["demo", "--help"]],
)
def test_help_imports_no_heavy_package(arguments: list[str]) -> None:
    code, names = modules_after(*arguments)
    assert code == 0
    assert not names & HEAVY


def test_a_check_of_plain_files_imports_no_yaml_library(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n")
    code, names = modules_after("check", str(tmp_path))
    assert (code, "ruamel" in names) == (0, False)


@pytest.mark.parametrize("command", ["plan", "diff"])
def test_a_plan_without_a_cluster_imports_no_http_library(command: str) -> None:
    repository = str(ROOT / "gitops_ds/examples-repo")
    code, names = modules_after(command, repository, "--cluster", "dev-1", "--simulate", "2")
    assert code in (0, 1)
    assert not names & {"aiohttp", "kubernetes"}


def test_no_error_is_a_command_to_the_runner_that_reads_it(tmp_path: Path) -> None:
    command = ("check", tmp_path, "--baseline", "no\n::error::such\n##[add-path]file")
    done = program.in_this_process(command, tmp_path, os.environ)
    assert done.code == 2
    assert "such" in done.err
    assert not [line for line in done.err.splitlines() if line.startswith("::") or "##[" in line]


@pytest.mark.system
def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    environment = {**os.environ, "VIRTUAL_ENV": str(tmp_path / "venv")}

    def run(*command: str | Path) -> str:
        return subprocess.run(
            command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    python = ("--python", sys.executable)
    dist = ("-o", tmp_path / "dist")
    run(uv, "build", "--quiet", "--wheel", "--no-build-isolation", *python, *dist, ROOT)
    run(uv, "venv", "--quiet", *python, tmp_path / "venv")
    run(uv, "pip", "install", "--quiet", "--require-hashes", "-r", ROOT / "requirements.lock")
    run(uv, "pip", "install", "--quiet", "--no-deps", next((tmp_path / "dist").glob("*.whl")))
    installed = tmp_path / "venv/bin/gitops-ds"
    where = run(tmp_path / "venv/bin/python", "-c", "import gitops_ds; print(gitops_ds.__file__)")
    assert where.startswith(str(tmp_path))
    run(installed, "init", "fleet")
    assert '"error": 0' in run(installed, "check", "fleet", "-o", "json")
    assert "kind: DaemonSet" in run(installed, "render", "fleet")
    packaged = Path(where.strip()).parent
    assert (packaged / f"schemas/kubernetes/v{kubernetes_versions.NEWEST}.json.gz").is_file()
    assert (packaged / "examples-repo/gitops-ds.yaml").is_file()


@pytest.mark.parametrize(
    "settings", ["repository: {url: https://git.example.com/a}", "templates: {}"]
)
def test_who_may_only_observe_is_given_nothing_to_apply(tmp_path: Path, settings: str) -> None:
    (tmp_path / "settings.yaml").write_text(f"{settings}\ncontroller: {{powers: observe}}\n")
    command = ("run", "--settings", tmp_path / "settings.yaml")
    done = program.in_this_process(command, tmp_path, os.environ)
    assert done.code == 2
    assert "set powers pace" in done.err
