"""The workflows of the project: valid, pinned, with few permissions and with limits of time."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.ci_files import files
from tests.ci_files.test_schemas import valid

GITHUB = files.ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
# Each permission to write, by workflow and job; everything else only reads.
WRITES = {
    ("release.yml", "image"): {"packages", "id-token", "attestations"},
    ("release.yml", "files"): {"packages", "id-token", "attestations"},
    ("release.yml", "pypi"): {"id-token"},
    ("release.yml", "release"): {"contents"},
    ("release.yml", "pages"): {"pages", "id-token"},
}
each = pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)


def workflow(file: Path) -> Any:
    (document,) = files.documents(file.read_text())
    return document


@each
def test_a_workflow_is_valid(file: Path) -> None:
    assert not valid("vendor.github-workflows", file)


def test_dependabot_updates_each_kind_of_dependency() -> None:
    file = GITHUB / "dependabot.yml"
    assert not valid("vendor.dependabot", file)
    updates = workflow(file)["updates"]
    assert {update["package-ecosystem"] for update in updates} == {
        "docker",
        "github-actions",
        "gomod",
        "pip",
    }
    for update in updates:
        for directory in update.get("directories", [update.get("directory")]):
            assert (files.ROOT / directory.lstrip("/")).is_dir()


@each
def test_an_action_is_pinned_to_a_commit_and_names_its_version(file: Path) -> None:
    lines = [line.strip() for line in file.read_text().splitlines() if "uses:" in line]
    for line in lines:
        if "uses: ./" not in line:
            assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_an_action_has_one_commit_in_all_workflows() -> None:
    text = "".join(file.read_text() for file in WORKFLOWS)
    pins = set(re.findall(r"uses: ([\w./-]+)@(\w+) # (\S+)", text))
    assert len(pins) == len({action for action, _, _ in pins})


@each
def test_a_workflow_reads_unless_a_job_has_a_reason_to_write(file: Path) -> None:
    document = workflow(file)
    assert document["permissions"] in ({}, {"contents": "read"})
    for name, job in document["jobs"].items():
        permissions = job.get("permissions", {})
        writes = {one for one, access in permissions.items() if access == "write"}
        assert writes == WRITES.get((file.name, name), set()), name


@each
def test_a_job_ends_in_time_and_a_newer_run_does_not_race_it(file: Path) -> None:
    document = workflow(file)
    assert document["concurrency"]["group"]
    for job in document["jobs"].values():
        assert "timeout-minutes" in job or job["uses"].startswith("./")


@each
def test_no_value_of_an_event_becomes_a_part_of_a_script(file: Path) -> None:
    document = workflow(file)
    assert "pull_request_target" not in document.get("on", document.get(True, {}))
    for job in document["jobs"].values():
        for step in job.get("steps", ()):
            assert "${{" not in step.get("run", "")
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


@each
def test_each_script_is_one_of_bash(file: Path) -> None:
    jobs = workflow(file)["jobs"].values()
    scripts = [step["run"] for job in jobs for step in job.get("steps", ()) if "run" in step]
    for script in scripts:
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_the_release_finds_the_base_images_of_the_containerfile() -> None:
    """It replaces each tag by its digest, so the default must be one with a tag."""
    text = (files.ROOT / "Containerfile").read_text()
    bases = dict(re.findall(r"(?m)^ARG (\w+_IMAGE)=(.*)$", text))
    assert set(bases) == {"GOLANG_IMAGE", "PYTHON_IMAGE"}
    assert all(re.fullmatch(r"[\w./-]+:[\w.-]+", base) for base in bases.values())
    release = (GITHUB / "workflows/release.yml").read_text()
    for name in bases:
        assert f"{name}=${{{{ steps.build.outputs.{name} }}}}" in release


@each
def test_no_workflow_has_a_secret_of_its_own(file: Path) -> None:
    """Registries and PyPI trust the identity of the workflow."""
    assert "secrets." not in file.read_text()


FORMS = sorted(
    path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"
)


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.name)
def test_an_issue_form_has_what_github_requires(file: Path) -> None:
    """https://docs.github.com/communities/using-templates/syntax-for-githubs-form-schema"""
    form = workflow(file)
    assert form["name"]
    assert form["description"]
    fields = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in fields}) == len(fields)
    for part in form["body"]:
        assert part["type"] in {"markdown", "input", "textarea", "dropdown", "checkboxes"}
        assert part["attributes"].get("label") or part["attributes"].get("value")
