"""Rendering ends with a bundle regardless of the content of the files: mistakes are findings, not
exceptions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_ds.core.errors import UsageError
from gitops_ds.core.objects import Path
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.source import render
from gitops_ds.yaml import parser
from tests import profiles
from tests.render import snapshots
from tests.render.test_cases import CASES

ODD = (
    None,
    True,
    0,
    -1.5,
    "",
    "${x}",
    "text",
    [],
    [None],
    [1],
    [[]],
    {},
    {"a": None},
    {"name": 1},
    [{"name": ["a"]}],
)


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    for step, item in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from places(item, (*path, step))


def changed(value: Any, path: Path, odd: Any) -> Any:
    if not path:
        return odd
    if isinstance(value, dict):
        return {
            key: changed(item, path[1:], odd) if key == path[0] else item
            for key, item in value.items()
        }
    return [
        changed(item, path[1:], odd) if index == path[0] else item
        for index, item in enumerate(value)
    ]


def targets() -> list[tuple[SourceTree, PurePosixPath, Any, Path]]:
    result = []
    for case in sorted(CASES.iterdir()):
        snapshot = snapshots.of_folder(case / "repo")
        for file, data in snapshot.files.items():
            if file.suffix in (".yaml", ".json") and "config" not in file.parts:
                values = parser.read(str(file), data).documents
                result += [
                    (snapshot, file, values[0].value, path)
                    for path in (places(values[0].value) if values else ())
                ]
    return result


TARGETS = targets()


def survives(snapshot: SourceTree) -> None:
    try:
        names = render.clusters(snapshot) or ("",)
        for cluster in names:
            render.as_yaml(render.render(snapshot, cluster=cluster))
    except UsageError:
        pass


@settings(max_examples=profiles.examples(300))
@given(target=st.sampled_from(TARGETS), odd=st.sampled_from(ODD))
def test_an_odd_value_anywhere_causes_no_exception(
    target: tuple[SourceTree, PurePosixPath, Any, Path], odd: Any
) -> None:
    snapshot, file, value, path = target
    survives(
        replace(snapshot, files={**snapshot.files, file: orjson.dumps(changed(value, path, odd))})
    )


@given(
    data=st.binary(max_size=60),
    name=st.sampled_from(
        ["a.yaml", "gitops-ds.yaml", "clusters/c.yaml", "agents/a/variants.yaml", ".gitopsdsignore"]
    ),
)
def test_odd_bytes_cause_no_exception(data: bytes, name: str) -> None:
    survives(SourceTree(None, {PurePosixPath(name): data}))
