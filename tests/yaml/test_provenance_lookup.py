"""From a value of a manifest to its sources."""

from __future__ import annotations

import pytest

from gitops_ds.core.sources.bundle import Origin, Pointer
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
