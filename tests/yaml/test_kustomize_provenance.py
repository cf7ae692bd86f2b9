"""The places of the values of a kustomized object: in the manifest or the patch that has them, and
never guessed.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from gitops_ds.core.objects import Path
from gitops_ds.yaml.provenance import kustomize

BASE = """\
kind: DaemonSet
metadata: {name: agent}
spec:
  minReadySeconds: 10
  containers:
    - {name: one, image: "a:1"}
    - {name: two, image: "b:1", args: [x, y]}
"""
PATCH = (
    "kind: DaemonSet\nmetadata: {name: agent}\nspec: {minReadySeconds: 20, containers: [{name: "
    "two, image: 'b:2'}]}\n"
)
OUTPUT = """\
kind: DaemonSet
metadata: {name: my-agent, namespace: n}
spec:
  minReadySeconds: 20
  containers:
    - {name: two, image: "b:2", args: [y, x]}
    - {name: one, image: "a:9"}
"""
FILES = {PurePosixPath("base.yaml"): BASE.encode(), PurePosixPath("patch.yaml"): PATCH.encode()}


def places_of(path: Path, output: str = OUTPUT, **changed: str) -> list[str]:
    """The places of a path, or of its nearest parent, as `file:path`."""
    files = {
        **FILES,
        **{PurePosixPath(f"{name}.yaml"): text.encode() for name, text in changed.items()},
    }
    resources = [file for file in files if file.stem != "patch"]
    places = kustomize.placed(output.encode(), resources, [PurePosixPath("patch.yaml")], files).get(
        0, {}
    )
    near = next(
        (places[path[:length]] for length in range(len(path), -1, -1) if path[:length] in places),
        (),
    )
    return [f"{one.file}:{'.'.join(map(str, one.path))}" for one in near]


@pytest.mark.parametrize(
    ("path", "places"),
    [
        (("spec", "minReadySeconds"), ["patch.yaml:spec.minReadySeconds"]),
        (("spec", "containers", 0, "image"), ["patch.yaml:spec.containers.0.image"]),
        (("spec", "containers", 0, "args", 0), ["base.yaml:spec.containers.1.args.1"]),
        # Changed by something else than a patch in a file: the container that has it.
        (("spec", "containers", 1, "image"), ["base.yaml:spec.containers.0"]),
        (
            ("spec", "containers", 0, "resources"),
            ["base.yaml:spec.containers.1", "patch.yaml:spec.containers.0"],
        ),
        (("spec", "updateStrategy"), ["base.yaml:spec", "patch.yaml:spec"]),
        (("metadata", "namespace"), ["base.yaml:metadata", "patch.yaml:metadata"]),
    ],
)
def test_a_value_is_located_in_the_file_that_has_it(path: Path, places: list[str]) -> None:
    assert places_of(path) == places


def test_an_object_that_two_files_could_be_has_no_place() -> None:
    assert places_of(("spec",), other="kind: DaemonSet\nmetadata: {name: my}\n") == []


def test_the_file_with_the_exact_name_is_used() -> None:
    assert places_of(
        ("spec", "a"), other="kind: DaemonSet\nmetadata: {name: my-agent}\nspec: {a: 1}\n"
    ) == ["other.yaml:spec"]


@pytest.mark.parametrize(
    "output",
    [
        "",
        "a: [",
        "- x\n",
        "kind: DaemonSet\nmetadata: x\n",
        "kind: {a: b}\nmetadata: {name: [agent]}\n",
    ],
)
def test_no_output_is_too_odd(output: str) -> None:
    assert places_of(("spec", "a"), output) == []
