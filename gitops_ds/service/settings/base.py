"""The base of every group of settings, the decoding of documents into groups, and the files that
settings name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from gitops_ds.core import duration, errors
from gitops_ds.core.duration import Duration
from gitops_ds.ownership.options import Limit

NonEmptyText = Annotated[str, msgspec.Meta(min_length=1)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class SettingsGroup(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One group of the settings file; a key is one field.

    `Annotated[type, describe("...")]` describes it for the JSON schema, which
    `scripts/settings-schema` generates from the fields.
    """


T = TypeVar("T", bound=SettingsGroup)


class Ratio:
    """A number, or a percentage such as `5%`."""

    __slots__ = ("limit",)

    def __init__(self, value: int | str) -> None:
        self.limit = (
            Limit(share=float(value.removesuffix("%")) / 100)
            if isinstance(value, str)
            else Limit(number=value)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ratio) and other.limit == self.limit

    def __hash__(self) -> int:
        return hash(self.limit)

    def __str__(self) -> str:
        return str(self.limit)


def describe(text: str, **schema: Any) -> msgspec.Meta:
    """The description of a key, with further keywords of its JSON schema."""
    return msgspec.Meta(description=text, extra_json_schema=schema or None)


def default_duration(text: str) -> Any:
    """A field with this default duration."""
    return msgspec.field(default_factory=lambda: duration.seconds(text))


def default_share(value: int | str) -> Any:
    """A field with this default share."""
    return msgspec.field(default_factory=lambda: Ratio(value))


def decode(kind: type[T], document: Mapping[str, Any]) -> T:
    """The group of a document, which must match the JSON schema. Raises SettingsError."""
    try:
        # Not strict: JSON Schema's integers include 2.0.
        return msgspec.convert(document, kind, strict=False, dec_hook=_decode_value)
    except msgspec.ValidationError as error:
        raise errors.SettingsError(str(error)) from None


def _decode_value(kind: type[Any], value: Any) -> Any:
    return duration.seconds(value) if kind is Duration else kind(value)


def read_file(name: str, file: str) -> bytes:
    """The content of the file of a setting, such as one with a token. Raises SettingsError."""
    try:
        return Path(os.path.expandvars(file)).read_bytes()
    except OSError as error:
        raise errors.SettingsError(f"{name}: {file}: {error.strerror}") from None
