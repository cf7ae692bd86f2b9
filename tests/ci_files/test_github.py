"""action.yml, step by step as a runner does it:
https://docs.github.com/actions/reference/workflows-and-actions/metadata-syntax
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.agent_manifest import agent
from tests.ci_files import files
from tests.ci_files.conftest import Work
from tests.gitservers import GIT_ENVIRONMENT, git

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.xdist_group("ci_files")]


class Runner:
    """A job of a pull request: variables, a checkout of the merge commit with a depth of one, steps
    with their outputs.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str], temporary: Path) -> None:
        self.output, self.summary = directory / "output", directory / "summary.md"
        self.workspace = directory / "workspace"
        for file in (self.output, self.summary):
            file.touch()
        self.inputs = {
            name: str(one.get("default", "")) for name, one in files.action()["inputs"].items()
        }
        self.environment = {
            **environment,
            **{name: value for name, value in GIT_ENVIRONMENT.items() if name != "PATH"},
            "HOME": environment["HOME"],
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(files.ROOT),
            "GITHUB_BASE_REF": "",
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(temporary),
        }

    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.output.read_text().splitlines())

    def step(self, name: str, **more: str) -> subprocess.CompletedProcess[str]:
        """https://docs.github.com/actions/reference/workflow-syntax-for-github-actions: bash, and
        the first failure ends it.
        """
        (step,) = [one for one in files.action()["runs"]["steps"] if one["name"] == name]
        assert step["shell"] == "bash"
        own = {key: self._evaluated(str(value)) for key, value in step.get("env", {}).items()}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        environment = {**self.environment, **own, **more}
        return subprocess.run(
            command,
            cwd=self.workspace,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def _evaluated(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            kind, _, name = match[1].partition(".")
            return (
                self.inputs[name]
                if kind == "inputs"
                else self.outputs().get(name.rpartition(".")[2], "")
            )

        return re.sub(r"\$\{\{ (\S+) \}\}", value, text)

    def check_out(self, work: Work, sha: str) -> None:
        """As actions/checkout does it, of a repository on this server."""
        self.environment |= {
            "GITHUB_SERVER_URL": work.upstream.parent.as_uri(),
            "GITHUB_REPOSITORY": work.upstream.name,
        }
        subprocess.run(("git", "init", "--quiet", self.workspace), env=GIT_ENVIRONMENT, check=True)
        git(self.workspace, "remote", "add", "origin", work.upstream.as_uri())
        git(
            self.workspace,
            "fetch",
            "--quiet",
            "--no-tags",
            "--depth=1",
            "origin",
            f"+{sha}:refs/remotes/pull/7/merge",
        )
        git(self.workspace, "checkout", "--quiet", "--force", "refs/remotes/pull/7/merge")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheels: Mapping[str, str]) -> Path:
    """RUNNER_TEMP after the first step, run in a work tree that tries to execute its own code."""
    temporary, directory = tmp_path_factory.mktemp("runner"), tmp_path_factory.mktemp("hostile")
    runner = Runner(directory, wheels, temporary)
    runner.workspace.mkdir()
    for module in ("venv", "ensurepip", "pip", "json", "sitecustomize"):
        (runner.workspace / f"{module}.py").write_text(
            "raise SystemExit('code of the pull request was run')"
        )
    done = runner.step("Install")
    assert done.returncode == 0, done.stdout + done.stderr
    return temporary


@pytest.fixture
def runner(tmp_path: Path, wheels: Mapping[str, str], installed: Path) -> Runner:
    return Runner(tmp_path, wheels, installed)


@pytest.fixture
def merge(work: Work) -> str:
    """The merge commit of a pull request that breaks the agent, on a newer target branch."""
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


def test_a_pull_request_is_checked_against_its_target_which_is_read_from_the_server(
    runner: Runner, work: Work, merge: str
) -> None:
    runner.check_out(work, merge)
    assert git(runner.workspace, "rev-list", "--all", "--count") == "1", "without the target"
    done = runner.step("Check", GITHUB_BASE_REF="main")
    assert done.returncode == 1, done.stderr
    assert git(runner.workspace, "rev-list", "--all", "--count") == "1"
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


def test_the_comment_is_requested_with_the_token_in_the_environment(
    runner: Runner, work: Work
) -> None:
    """Up to the forge: tests/forges covers the requests to a forge."""
    runner.check_out(work, work.git("rev-parse", "main"))
    assert "no comment" in runner.step("Comment").stdout
    runner.step("Check")
    runner.inputs["token"] = "secret-token"
    there = {
        "GITHUB_REPOSITORY": "acme/agents",
        "GITHUB_API_URL": "http://127.0.0.1:9",
        "GITHUB_REF": "refs/pull/7/merge",
    }
    done = runner.step("Comment", **there, GITHUB_SHA="a" * 40, GITOPS_DS_TIMEOUT="1")
    assert done.returncode == 3
    assert "http://127.0.0.1:9/api/v3 can't be reached" in done.stderr
    assert "secret-token" not in done.stdout + done.stderr


def hostile(runner: Runner, work: Work, marker: Path) -> None:
    """A pull request that commits a bare repository in `deploy`, which git finds before the one
    around it, and links.
    """
    command = f"sh -c 'touch {marker}; exit 1' x"
    deploy = work.clone / "deploy"
    (deploy / "objects").mkdir(parents=True)
    (deploy / "refs/heads").mkdir(parents=True)
    for folder in ("objects", "refs/heads"):
        (deploy / folder / "keep").touch()
    (deploy / "HEAD").write_text("1" * 40)
    keys = "".join(
        f'{key} = "{command}"\n'
        for key in ("sshCommand", "fsmonitor", "hooksPath", "pager", "editor")
    )
    (deploy / "config").write_text(
        f'[core]\nbare = false\nworktree = .\n{keys}[remote "origin"]\nurl = '
        f'ssh://x/y\nuploadpack = "{command}"\n'
        f'[alias]\nrev-parse = "!{command}"\nfetch = "!{command}"\n'
    )
    (deploy / "agent.yaml").write_text(agent("deployed"))
    (work.clone / "away").symlink_to("/")
    (work.clone / "up").symlink_to("..")
    for name in ("gitops-ds-reports", "report.json", "report.markdown", "report.sarif"):
        (work.clone / name).symlink_to(runner.summary)
    sha = work.commit("hostile")
    work.git("push", "--quiet", "origin", f"{sha}:refs/pull/8/merge")
    runner.check_out(work, sha)


def test_nothing_of_a_hostile_tree_runs_and_none_of_its_links_are_followed(
    runner: Runner, work: Work, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    hostile(runner, work, marker)
    for path in (".", "deploy", "away", "up", "deploy/objects"):
        runner.inputs["path"] = path
        done = runner.step("Check", GITHUB_BASE_REF="main")
        assert not marker.exists(), path
        # Links to manifests are errors of the check; a directory that is a repository of its own,
        # or leads away, is refused.
        assert done.returncode == (1 if path == "." else 2 if path in {"away", "up"} else 3), (
            path,
            done.stdout,
            done.stderr,
        )


def test_the_steps_run_no_git_and_write_outside_of_the_checkout(
    runner: Runner, work: Work, merge: str
) -> None:
    runner.check_out(work, merge)
    before = _written(runner.workspace)
    done = runner.step("Check", GITHUB_BASE_REF="main")
    assert done.returncode == 1, done.stderr
    assert _written(runner.workspace) == before
    for step in files.action()["runs"]["steps"]:
        assert not re.search(r"(^|[\s(])git\s", re.sub(r"#.*", "", step["run"]))


def _written(directory: Path) -> dict[Path, tuple[int, ...]]:
    """Every file with what a write changes of it; reading changes only when it was last read."""
    files_before = {path: path.lstat() for path in directory.rglob("*")}
    return {
        path: (stat.st_ino, stat.st_mode, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        for path, stat in files_before.items()
    }
