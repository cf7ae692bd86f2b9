"""action.yml, step by step as a runner does it: https://docs.github.com/actions/reference/workflows-and-actions/metadata-syntax"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.ci_files import files
from tests.ci_files.conftest import Work
from tests.gitservers import GIT_ENVIRONMENT

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("ci_files")]


class Runner:
    """A job of a pull request: variables, a checkout of the merge commit with a depth of one, steps with their outputs."""

    def __init__(self, directory: Path, environment: Mapping[str, str], temporary: Path) -> None:
        self.output, self.summary = directory / "output", directory / "summary.md"
        self.workspace = directory / "workspace"
        for file in (self.output, self.summary):
            file.touch()
        self.inputs = {name: str(one.get("default", "")) for name, one in files.action()["inputs"].items()}
        self.environment = {
            **environment,
            **{name: value for name, value in GIT_ENVIRONMENT.items() if name != "PATH"},
            "HOME": environment["HOME"],
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(files.ROOT),
            "GITHUB_BASE_REF": "",
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "RUNNER_TEMP": str(temporary),
        }

    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.output.read_text().splitlines())

    def step(self, name: str, **more: str) -> subprocess.CompletedProcess[str]:
        """https://docs.github.com/actions/reference/workflow-syntax-for-github-actions: bash, and the first failure ends it."""
        (step,) = [one for one in files.action()["runs"]["steps"] if one["name"] == name]
        assert step["shell"] == "bash"
        own = {key: self._evaluated(str(value)) for key, value in step.get("env", {}).items()}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        environment = {**self.environment, **own, **more}
        return subprocess.run(
            command, cwd=self.workspace, env=environment, capture_output=True, text=True, check=False, timeout=600
        )

    def _evaluated(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            kind, _, name = found[1].partition(".")
            return self.inputs[name] if kind == "inputs" else self.outputs().get(name.rpartition(".")[2], "")

        return re.sub(r"\$\{\{ (\S+) \}\}", value, text)

    def check_out(self, work: Work, sha: str) -> None:
        """As actions/checkout does it."""
        subprocess.run(("git", "init", "--quiet", self.workspace), env=GIT_ENVIRONMENT, check=True)
        Work.run(self.workspace, "remote", "add", "origin", work.upstream.as_uri())
        Work.run(self.workspace, "fetch", "--quiet", "--no-tags", "--depth=1", "origin", f"+{sha}:refs/remotes/pull/7/merge")
        Work.run(self.workspace, "checkout", "--quiet", "--force", "refs/remotes/pull/7/merge")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheels: Mapping[str, str]) -> Path:
    """RUNNER_TEMP after the first step, run in a work tree that tries to get its own code executed."""
    temporary, directory = tmp_path_factory.mktemp("runner"), tmp_path_factory.mktemp("hostile")
    runner = Runner(directory, wheels, temporary)
    runner.workspace.mkdir()
    for module in ("venv", "ensurepip", "pip", "json", "sitecustomize"):
        (runner.workspace / f"{module}.py").write_text("raise SystemExit('code of the pull request was run')")
    done = runner.step("Install")
    assert done.returncode == 0, done.stdout + done.stderr
    return temporary


@pytest.fixture
def runner(tmp_path: Path, wheels: Mapping[str, str], installed: Path) -> Runner:
    return Runner(tmp_path, wheels, installed)


@pytest.fixture
def merge(work: Work) -> str:
    """The merge commit of a pull request that breaks the agent, while the target branch went on."""
    work.git("checkout", "--quiet", "-b", "change")
    work.write("another")
    work.commit("break it")
    work.git("checkout", "--quiet", "main")
    (work.clone / "README.md").write_text("meanwhile\n")
    work.commit("meanwhile")
    work.git("push", "--quiet", "origin", "main", "change")
    work.git("checkout", "--quiet", "--detach", "main")
    work.git("merge", "--quiet", "--no-edit", "change")
    work.git("push", "--quiet", "origin", "HEAD:refs/pull/7/merge")
    return work.git("rev-parse", "HEAD")


def test_a_pull_request_is_checked_against_its_target(runner: Runner, work: Work, merge: str) -> None:
    runner.check_out(work, merge)
    done = runner.step("Check", GITHUB_BASE_REF="main")
    assert done.returncode == 1, done.stderr
    assert "::error file=agent.yaml,line=5" in done.stdout
    assert "DS101" in runner.summary.read_text()
    report = json.loads(Path(runner.outputs()["json"]).read_text())
    (group,) = report["changes"]
    assert [change["object"]["name"] for change in group["changes"]] == ["agent"]
    assert json.loads(Path(runner.outputs()["sarif"]).read_text())["version"] == "2.1.0"
    assert Path(runner.outputs()["markdown"]).read_text().startswith("<!-- gitops-ds:report")


def test_a_push_is_checked_by_itself(runner: Runner, work: Work) -> None:
    runner.check_out(work, work.git("rev-parse", "main"))
    done = runner.step("Check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changes" not in json.loads(Path(runner.outputs()["json"]).read_text())


@pytest.mark.parametrize("name", ["path", "base", "clusters", "inventory", "fail-on"])
def test_no_input_is_executed(runner: Runner, work: Work, tmp_path: Path, name: str) -> None:
    runner.check_out(work, work.git("rev-parse", "main"))
    made = tmp_path / "made"
    runner.inputs[name] = f'"; touch {made}; $(touch {made}) `touch {made}`'
    assert runner.step("Check").returncode != 0
    assert not made.exists()


def test_the_comment_is_asked_for_with_the_token_in_the_environment(runner: Runner, work: Work) -> None:
    """Up to the forge: what is said to a forge is tested in tests/forges."""
    runner.check_out(work, work.git("rev-parse", "main"))
    assert "no comment" in runner.step("Comment").stdout
    runner.step("Check")
    runner.inputs["token"] = "secret-token"
    there = {"GITHUB_REPOSITORY": "acme/agents", "GITHUB_API_URL": "http://127.0.0.1:9", "GITHUB_REF": "refs/pull/7/merge"}
    done = runner.step("Comment", **there, GITHUB_SHA="a" * 40, GITOPS_DS_TIMEOUT="1")
    assert done.returncode == 3
    assert "http://127.0.0.1:9/api/v3 can't be reached" in done.stderr
    assert "secret-token" not in done.stdout + done.stderr
