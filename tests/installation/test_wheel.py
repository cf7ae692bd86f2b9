"""The wheel as it is published: built from the source distribution, installed in an environment of
its own, without an index.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.ci_files.files import ROOT

# https://peps.python.org/pep-0517/: the backend's own hooks, without a frontend that would fetch
# the backend.
BUILD = "import sys, hatchling.build as b; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"


def built(kind: str, source: Path, into: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, kind, into],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return into / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By where it was built: in the work tree, and in the unpacked source distribution."""
    house = tmp_path_factory.mktemp("wheel")
    with tarfile.open(built("sdist", ROOT, house)) as packed:
        packed.extractall(house, filter="data")
    (unpacked,) = (path for path in house.iterdir() if path.is_dir())
    for name in ("tree", "sdist"):
        (house / name).mkdir()
    return {
        "tree": built("wheel", ROOT, house / "tree"),
        "sdist": built("wheel", unpacked, house / "sdist"),
    }


@pytest.mark.slow
def test_a_wheel_of_the_source_distribution_holds_what_one_of_the_work_tree_does(
    wheels: dict[str, Path],
) -> None:
    names = {}
    for where, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as packed:
            assert len(packed.namelist()) == len(set(packed.namelist()))
            names[where] = set(packed.namelist())
    assert names["sdist"] == names["tree"]
    shipped = {
        path.relative_to(ROOT)
        for folder in ("examples-repo", "schemas")
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
    }
    assert {f"gitops_ds/{path}" for path in shipped} <= names["sdist"]


@pytest.mark.slow
def test_the_installed_wheel_runs_the_demo(wheels: dict[str, Path], tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    python = tmp_path / "bin/python"
    installs: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        wheels["sdist"],
    ]
    subprocess.run(installs, check=True)
    # What it needs is what we have: nothing is fetched.
    site = next((tmp_path / "lib").glob("python*/site-packages"))
    (site / "needed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    program = tmp_path / "bin/gitops-ds"
    done = subprocess.run(
        [program, "demo", "--speed", "200"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    where: list[str | Path] = [python, "-c", "import gitops_ds; print(gitops_ds.__file__)"]
    ended = subprocess.run(where, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith(str(site))
