"""The JSON schema of the settings file is generated from the groups of settings."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.service.settings import json_schema, service

ROOT = Path(__file__).parents[2]


def test_the_schema_file_is_what_the_script_writes() -> None:
    script = runpy.run_path(str(ROOT / "scripts/settings-schema"))
    assert (ROOT / "schemas/settings.schema.json").read_text("utf-8") == script["text"](), (
        "run `make generate`"
    )


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object of a schema that has named properties."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for value in schema.values():
            yield from objects(value)


def test_every_object_is_closed_and_every_key_has_a_description() -> None:
    for schema in objects(json_schema.document()):
        assert schema["additionalProperties"] is False
        for name, key in schema["properties"].items():
            assert key.get("description") or key == {"$ref": "#/$defs/commit"}, name


@pytest.mark.parametrize(
    ("place", "default"),
    [
        (("health", "progressDeadline"), "10m"),
        (("apply", "holdFor"), "1d"),
        (("controller", "powers"), "pace"),
        (("log", "format"), "text"),
    ],
)
def test_the_schema_names_defaults(place: tuple[str, str], default: object) -> None:
    group, key = place
    schema = json_schema.document()["properties"][group]["properties"][key]
    assert schema["default"] == default


def test_a_document_of_the_defaults_means_the_same_as_an_empty_one() -> None:
    document = {
        name: {
            key: schema["default"]
            for key, schema in group["properties"].items()
            if "default" in schema
        }
        for name, group in json_schema.document()["properties"].items()
        if "properties" in group and name not in ("templates", "startupTaints")
    }
    assert service.parse(document) == service.parse({})
