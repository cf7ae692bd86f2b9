"""The steps of the image are run. The result starts as an unprivileged user on a read-only root,
with all that it needs.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.agent_manifest import agent
from tests.installation import containerfile

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("image")]


@pytest.fixture(scope="session")
def image() -> containerfile.Image:
    return containerfile.Build().target("service")


def test_the_image_has_all_programs_and_writes_only_to_permitted_directories(
    image: containerfile.Image,
) -> None:
    done = containerfile.run(
        image,
        "sh",
        "-c",
        "for one in git ssh gpg helm kustomize; do command -v $one || exit 9; done; id -u",
    )
    assert (done.returncode, done.stdout.split()[-1]) == (0, "65532"), done.stderr
    assert containerfile.run(image, "sh", "-c", "touch /opt/gitops-ds/x").returncode
    assert containerfile.run(image, "sh", "-c", "touch /tmp/x").returncode == 0


def test_no_program_of_the_image_runs_as_another_user_and_nothing_else_is_for_all_to_write(
    image: containerfile.Image,
) -> None:
    for options in (
        "-type f -perm /6000",
        "-type f -perm -o+w",
        "-type d -perm -o+w ! -perm -1000",
    ):
        found = containerfile.run(image, "sh", "-c", f"find / -xdev {options} 2> /dev/null")
        assert found.stdout == ""


def test_the_image_starts_quickly_from_its_bytecode(
    image: containerfile.Image, capsys: pytest.CaptureFixture[str]
) -> None:
    assert image.entrypoint == ("gitops-ds",)
    assert image.command[0] == "run"
    began = time.monotonic()
    done = containerfile.run(image, *image.entrypoint, "version")
    seconds = time.monotonic() - began
    assert done.stdout.startswith("gitops-ds "), done.stderr
    assert containerfile.run(image, *image.entrypoint, "run", "--help").returncode == 0
    with capsys.disabled():
        print(
            f"\nimage: {image.bytes / 2**20:.0f} MiB above its base, `version` in {seconds:.2f} s"
        )
    # What is missing would be compiled at each start, for it can't be written.
    looked = (
        "find /opt/gitops-ds/lib -name '*.py' -path '*/gitops_ds/*' ! -path "
        "'*/commands/init/repository/*' | while read f; do"
    )
    missing = (
        "d=${f%/*}; b=${f##*/}; ls $d/__pycache__/${b%.py}.*.pyc > /dev/null 2>&1 || echo $f; done"
    )
    assert containerfile.run(image, "sh", "-c", f"{looked} {missing}").stdout == ""


def test_the_image_checks_a_read_only_repository(
    tmp_path: Path, image: containerfile.Image
) -> None:
    (tmp_path / "agent.yaml").write_text(agent())
    tmp_path.chmod(0o755)
    done = containerfile.run(image, *image.entrypoint, "check", binds=[(tmp_path, "/work")])
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "agent.yaml").write_text(agent(label="other"))
    assert (
        containerfile.run(image, *image.entrypoint, "check", binds=[(tmp_path, "/work")]).returncode
        == 1
    )


def test_the_list_of_what_is_installed_is_reproducible(image: containerfile.Image) -> None:
    made = "python /opt/gitops-ds/share/sbom /usr/local/bin/helm /usr/local/bin/kustomize"
    script = f"{made} | cmp - /opt/gitops-ds/share/sbom.cdx.json"
    done = containerfile.run(image, "sh", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
