"""The files for CIs match the published schemas, and pass no value of a pull request into a
script.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from gitops_ds import __version__
from tests.ci_files import files
from tests.docs import pages
from tests.installation import containerfile

SCAFFOLD = files.ROOT / "gitops_ds/cli/init/repository"


def valid(schema: str, file: Path) -> str:
    """The output of check-jsonschema with one of its own schemas."""
    from check_jsonschema.cli.main_command import main as checker

    done = CliRunner().invoke(checker, ["--builtin-schema", schema, str(file)])
    return "" if done.exit_code == 0 else done.output or repr(done.exception)


def test_the_action_is_valid() -> None:
    assert not valid("vendor.github-actions", files.ROOT / "action.yml")


def test_the_template_is_valid_and_every_input_is_used(tmp_path: Path) -> None:
    spec, text = files.template(comment="true", path="fleet")
    assert "$[[" not in text
    (tmp_path / "ci.yml").write_text(text)
    assert not valid("vendor.gitlab-ci", tmp_path / "ci.yml")
    raw = (files.ROOT / "templates/check.yml").read_text()
    assert set(re.findall(r"\$\[\[ inputs\.([\w-]+) \]\]", raw)) == set(spec)


def test_the_hooks_are_valid() -> None:
    done = subprocess.run(
        [
            Path(sys.executable).with_name("pre-commit"),
            "validate-manifest",
            files.ROOT / ".pre-commit-hooks.yaml",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    (hooks,) = files.documents((files.ROOT / ".pre-commit-hooks.yaml").read_text())
    assert all(hook["require_serial"] for hook in hooks)


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("vendor.github-workflows", "dot-github/workflows/gitops-ds.yaml"),
        ("vendor.gitlab-ci", "dot-gitlab-ci.yml"),
    ],
)
def test_the_ci_files_of_init_are_valid(schema: str, file: str) -> None:
    assert not valid(schema, SCAFFOLD / file)


def workflows() -> list[pages.Block]:
    """The whole workflows of the documentation."""
    blocks = [
        b
        for s in pages.sections(files.ROOT / "docs/checks.md")
        for b in s.blocks
        if b.language == "yaml"
    ]
    return [block for block in blocks if re.search("^on:", block.text, re.MULTILINE)]


@pytest.mark.parametrize("block", workflows(), ids=lambda block: f"line {block.line}")
def test_the_workflows_of_the_documentation_are_valid(block: pages.Block, tmp_path: Path) -> None:
    (tmp_path / "workflow.yml").write_text(block.text)
    assert not valid("vendor.github-workflows", tmp_path / "workflow.yml")


def test_no_input_becomes_a_part_of_a_script() -> None:
    steps = files.action()["runs"]["steps"]
    assert steps
    for step in steps:
        assert "${{" not in step["run"]
    jobs = files.documents((files.ROOT / "templates/check.yml").read_text())[1]
    for job in jobs.values():
        assert "$[[" not in "\n".join(job["script"])


def test_the_images_run_as_an_unprivileged_user_from_pinned_parts() -> None:
    steps = containerfile.instructions()
    bases = {rest.split()[-1]: rest.split()[0] for word, rest in steps if word == "FROM"}
    assert all(
        base in bases or re.search(r"/python:\d+\.\d+-slim$|/golang:\d+\.\d+$", base)
        for base in bases.values()
    )
    assert list(bases)[-2:] == ["check", "service"]
    users: dict[str, str] = {}
    stage = ""
    for word, rest in steps:
        stage = rest.split()[-1] if word == "FROM" else stage
        users |= {stage: rest} if word == "USER" else {}
    assert users == {"check": "65532:65532", "service": "65532:65532"}
    assert not any(word == "ADD" for word, _ in steps)


def test_the_images_have_the_labels_of_the_specification() -> None:
    """https://specs.opencontainers.org/image-spec/annotations/"""
    (labels,) = [rest for word, rest in containerfile.instructions() if word == "LABEL"]
    values = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]+)"', labels))
    assert {"title", "description", "source", "licenses", "version", "revision"} <= set(values)
    workflow = (files.ROOT / ".github/workflows/release.yml").read_text()
    for argument in re.findall(r"\$\{(\w+)\}", labels):
        assert f"            {argument}=" in workflow


def test_the_runtime_lock_is_a_subset_of_the_other_and_holds_the_requirements_of_pyproject() -> (
    None
):
    """`make lock` makes both. A hash for each; the build backend too, so that nothing is installed
    without one.
    """
    every, runtime = files.locked(files.ROOT / "requirements.lock"), files.locked(files.LOCK)
    assert runtime.items() <= every.items()
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", hashes) for hashes in runtime.values())
    names = {re.split("[= ;]", requirement)[0] for requirement in runtime}
    project = tomllib.loads((files.ROOT / "pyproject.toml").read_text())
    expected = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    assert {re.split(r"[\[<>=; ]", one)[0].replace(".", "-") for one in expected} <= names
    assert not names & {"pytest", "mypy", "ruff", "atheris"}


INSTALLS = [
    *(step["run"] for step in files.action()["runs"]["steps"] if "pip" in step["run"]),
    *(
        rest
        for word, rest in containerfile.instructions()
        if word == "RUN" and "pip install" in rest
    ),
]


@pytest.mark.parametrize("script", INSTALLS)
def test_every_installed_package_has_a_hash_or_is_the_program_itself(script: str) -> None:
    assert INSTALLS
    assert "--no-deps" in script
    assert "--require-hashes" in script or "--no-build-isolation" in script


def test_the_component_installs_this_version() -> None:
    spec, _ = files.template()
    assert spec["package"]["default"] == f"gitops-ds=={__version__}"
