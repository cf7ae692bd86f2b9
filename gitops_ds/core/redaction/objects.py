"""Objects and fields with their possible secrets hidden; a change stays visible without its
content. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gitops_ds.core.change import FieldChange
from gitops_ds.core.objects import Key
from gitops_ds.core.redaction import patterns, texts
from gitops_ds.core.redaction.patterns import HIDDEN, names_secret
from gitops_ds.core.redaction.texts import Take

_SECRET_DATA: Final = (("data",), ("stringData",))


def field(key: Key, change: FieldChange) -> FieldChange:
    """The change with its secret values hidden."""
    if (key.kind == "Secret" and change.path[:1] in _SECRET_DATA) or is_secret_change(change):
        return FieldChange(
            change.path, *(None if value is None else HIDDEN for value in (change.old, change.new))
        )
    return FieldChange(change.path, value(change.old), value(change.new))


def is_secret_change(change: FieldChange) -> bool:
    """Whether the path ends in a key, or leads to an environment variable, whose name implies a
    secret.
    """
    path = change.path
    if len(path) >= 3 and path[-1] == "value" and path[-3] == "env":
        return names_secret(str(path[-2]))
    return (
        names_secret(str(path[-1]))
        and all(side is None or is_scalar(side) for side in (change.old, change.new))
        if path
        else False
    )


def value(shown: Any) -> Any:
    """A value of an object, such as a pod template."""
    return hidden(shown, _forget)


def body(shown: Mapping[str, Any]) -> dict[str, Any]:
    """A whole object with its secrets hidden, for output."""
    result: dict[str, Any] = value(shown)
    return result


def hidden(part: Any, take: Take, *, over_redact: bool = False) -> Any:
    """A document or a string without possible secrets; `take` gets each hidden value.

    `over_redact` also hides random words in variables, and the termination message of a
    container.
    """
    match part:
        case Mapping():
            return _of_mapping(part, take, over_redact)
        case list() | tuple():
            return _of_list(list(part), take, over_redact)
        case str():
            return (texts.foreign if over_redact else texts.content)(part, take)
        case _:
            return part


def _forget(_: str) -> None:
    """Ignores a hidden value."""


def _of_mapping(part: Mapping[str, Any], take: Take, over_redact: bool) -> dict[str, Any]:
    result: dict[str, Any] = {}
    whole = part.get("kind") == "Secret"
    for key, value in part.items():
        if whole and key in ("data", "stringData") and isinstance(value, Mapping):
            result[key] = {name: taken(held, take) for name, held in value.items()}
        elif (
            over_redact
            and key == "terminated"
            and isinstance(value, Mapping)
            and value.get("message")
        ):
            # A termination message is any output of a failed program.
            result[key] = {**_of_mapping(value, take, over_redact), "message": HIDDEN}
        elif key == "value" and _is_variable(part.get("name"), value, over_redact):
            result[key] = _taken_whole(value, take)
        elif is_scalar(value) and names_secret(str(key)):
            result[key] = taken(value, take)
        else:
            result[key] = hidden(value, take, over_redact=over_redact)
    return result


def _is_variable(name: Any, value: Any, over_redact: bool) -> bool:
    return isinstance(name, str) and (
        names_secret(name) or (over_redact and patterns.looks_random(value))
    )


def _of_list(part: list[Any], take: Take, over_redact: bool) -> list[Any]:
    return [
        value.removesuffix(secret) + taken(secret, take)
        if secret
        else hidden(value, take, over_redact=over_redact)
        for value, secret in zip(part, secret_words(part), strict=True)
    ]


def secret_words(part: list[Any]) -> list[str]:
    """The secret end of each item of a command line, or an empty string: the word after `--token`,
    and for `mysql` the text after `-p`.
    """
    words, before = [], ""
    texts_of = [line if isinstance(line, str) else "" for line in part]
    if not any(texts_of):
        return texts_of
    is_attached = any(map(texts.takes_attached_password, texts_of))
    for word in texts_of:
        flagged = before.startswith("-") and "=" not in before and names_secret(before)
        secret = word if flagged and not word.startswith("-") else ""
        if is_attached and word.startswith("-p") and " " not in word:
            secret = word[2:]
        words.append(secret)
        before = word
    return words


def taken(value: Any, take: Take) -> Any:
    """The replacement of a secret; an empty value and a reference are unchanged."""
    if value is None or value == "" or patterns.is_reference(str(value)):
        return value
    take(str(value))
    return HIDDEN


def scalars(value: Any) -> list[str]:
    """The strings and numbers of a value, also of one with the wrong type for a variable."""
    match value:
        case Mapping():
            return [text for below in value.values() for text in scalars(below)]
        case list() | tuple():
            return [text for below in value for text in scalars(below)]
        case _:
            return [str(value)] if is_scalar(value) else []


def _taken_whole(value: Any, take: Take) -> Any:
    """The replacement of the value of a variable, which may have the wrong type."""
    if is_scalar(value):
        return taken(value, take)
    secrets = scalars(value)
    for secret in secrets:
        take(secret)
    return HIDDEN if secrets else value


def is_scalar(value: Any) -> bool:
    """Whether the value is a string or a number."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)
