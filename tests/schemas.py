"""The documents of our own schemas: a field that its schema lacks is a short failure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
from jsonschema.exceptions import ValidationError

FOLDER = Path(__file__).parents[1] / "schemas"
SHOWN = 5  # mistakes in a message
LONGEST = 200  # characters of a mistake


def read(name: str) -> Any:
    """A schema by its name without `.schema.json`, in which every field must be described:
    programs must accept further ones.
    """
    text = (FOLDER / f"{name}.schema.json").read_text("utf-8")
    return json.loads(text.replace('"additionalProperties": true', '"additionalProperties": false'))


def check(document: object, name: str) -> None:
    """Fails with the paths of the fields that differ from the schema, and with what to do."""
    mistakes = list(flaws(document, read(name)))
    if mistakes:
        more = [f"and {len(mistakes) - SHOWN} more"] if len(mistakes) > SHOWN else []
        file = f"schemas/{name}.schema.json"
        lines = (
            f"the JSON differs from {file}:",
            *(f"  {line}" for line in (*mistakes[:SHOWN], *more)),
            "Describe a new field there, then run `make generate`; keep published fields.",
        )
        pytest.fail("\n".join(lines), pytrace=False)


def flaws(document: object, schema: Any) -> Iterator[str]:
    """Each mistake with the path of its field."""
    for error in jsonschema.Draft202012Validator(schema).iter_errors(document):
        innermost = jsonschema.exceptions.best_match([error]) or error
        for field, reason in _of(innermost):
            yield f"{field}: {reason}"[:LONGEST]


def _of(error: ValidationError) -> Iterator[tuple[str, str]]:
    path, schema, value = error.json_path, cast("Any", error.schema), cast("Any", error.instance)
    match error.validator:
        case "additionalProperties" if "allOf" in error.absolute_schema_path:
            return  # a part of the object; the other parts describe more fields
        case "additionalProperties":
            unknown = value.keys() - schema.get("properties", {}).keys()
            yield from ((f"{path}.{name}", "not described") for name in sorted(unknown))
        case "required":
            missing = (name for name in schema["required"] if name not in value)
            yield from ((f"{path}.{name}", "missing") for name in missing)
        case _:
            yield path, error.message
