"""From a value of a manifest to the line that set it."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from gitops_ds.model.sources.bundle import Origin, Pointer
from gitops_ds.model.sources.source_tree import SourceTree
from gitops_ds.yaml.provenance import lookup

BASE = Pointer("d.yaml", 1, ())
WINNER, LOSER = (
    Pointer("v.yaml", 0, ("resources",)),
    Pointer("s.json", 0, ("properties", "resources", "default")),
)
ORIGIN = Origin(BASE, {("spec", "resources"): (WINNER, LOSER)})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("metadata", "name"), [Pointer("d.yaml", 1, ("metadata", "name"))]),
        (("spec",), [Pointer("d.yaml", 1, ("spec",))]),
        (("spec", "resources"), [WINNER, LOSER]),
        (
            ("spec", "resources", "limits", "cpu"),
            [
                Pointer("v.yaml", 0, ("resources", "limits", "cpu")),
                Pointer("s.json", 0, ("properties", "resources", "default", "limits", "cpu")),
            ],
        ),
    ],
)
def test_the_nearest_parent_with_a_setting_is_the_source(
    path: tuple[str, ...], expected: list[Pointer]
) -> None:
    assert list(lookup.pointers(ORIGIN, path)) == expected


def test_the_place_is_in_the_winners_file() -> None:
    files = {
        PurePosixPath("v.yaml"): b"resources:\n  limits: {cpu: 1}\n",
        PurePosixPath("d.yaml"): b"a: 1\n---\nmetadata: {name: x}\n",
    }
    assert (
        str(lookup.locate(ORIGIN, ("spec", "resources", "limits", "cpu"), files)) == "v.yaml:2:17"
    )
    assert (
        str(lookup.locate(ORIGIN, ("spec", "resources", "limits", "cpu"), files, key=True))
        == "v.yaml:2:12"
    )
    assert str(lookup.locate(ORIGIN, ("metadata", "name"), files)) == "d.yaml:3:18"
    assert str(lookup.locate(ORIGIN, ("metadata", "name"), {})) == "d.yaml"


def test_output_of_kustomize_is_located_only_at_its_file() -> None:
    files = {PurePosixPath("k/kustomization.yaml"): b"", PurePosixPath("a.yaml"): b""}
    snapshot = SourceTree(None, files, expanded={PurePosixPath("k"): b""})
    assert list(lookup.sources(snapshot)) == [PurePosixPath("a.yaml")]
