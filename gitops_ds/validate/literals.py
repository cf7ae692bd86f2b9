"""Secrets that are written out where everybody with the repository reads them. No message here repeats a value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.kinds.secret_shapes import ISSUED
from gitops_ds.model.objects import Body, Path
from gitops_ds.validate.rule import Told, containers, items

# What a name ends in whose value is a secret: not TOKEN_FILE, SECRET_NAME, PASSWORD_MIN_LENGTH.
_NAMES_SECRET: Final = re.compile(
    r"(?:pass(?:word|wd|phrase)|secret|token|(?:api|access|private|secret|account|license)[_.-]?key|credentials?)\Z", re.IGNORECASE
)
_OPTION: Final = re.compile(r"--?([A-Za-z][A-Za-z0-9_.-]*)=(.+)\Z", re.DOTALL)
# A key, a token, and a password in a URL.
_SHAPES: Final = re.compile(
    rf"-----BEGIN [A-Z ]{{0,20}}PRIVATE KEY-----|{ISSUED}"
    r"|\beyJ[\w-]{16,}\.eyJ[\w-]{16,}\.[\w-]{16}"
    r"|://[\w.+-]{1,64}:[^\s/@:\"'${<*]{3,128}@"
)
# What stands for a value, or is none: variables, templates, paths, switches, numbers, words like "changeme" in brackets.
_NO_SECRET: Final = re.compile(
    r"|[$%{<\[(*].*|/.*|[A-Za-z]:\\.*|.{0,3}|true|false|none|null|yes|no|optional|required|disabled|enabled|redacted|x+|[0-9]{1,5}"
    r"|(?:env|file|vault|ref|secret|aws-sm|awssm|gcp-sm|https?)(?:://|:).*|[\w.-]+\.(?:txt|pem|key|crt|json|ya?ml|conf)",
    re.IGNORECASE | re.DOTALL,
)


def no_secrets(body: Body) -> Iterator[Told]:
    """DS514: no secret is written out in a variable, an argument or a ConfigMap."""
    if body.get("kind") == "ConfigMap":
        data = body.get("data")
        for name, value in data.items() if isinstance(data, Mapping) else ():
            if isinstance(value, str) and _is_secret(str(name), value):
                yield ("data", str(name)), f"{name} looks like a secret, and the repository keeps it for ever: {_INSTEAD}"
        return
    for way, container in containers(body):
        for index, variable in enumerate(items(container.get("env"))):
            value = variable.get("value")
            if isinstance(value, str) and _is_secret(str(variable.get("name")), value):
                message = (
                    f"the variable {variable.get('name')} looks like a secret, and the repository keeps it for ever: {_INSTEAD}"
                )
                yield (*way, "env", index, "value"), message
        for field in ("command", "args"):
            yield from _arguments((*way, field), container.get(field))


_INSTEAD: Final = "take it from a Secret, and replace it, for it has been read"


def _arguments(way: Path, given: Any) -> Iterator[Told]:
    for index, argument in enumerate(given or ()):
        option = _OPTION.match(argument) if isinstance(argument, str) else None
        name, value = option.groups() if option else ("", argument)
        if isinstance(value, str) and _is_secret(name, value):
            what = f"the option {name}" if name else "the argument"
            yield (*way, index), f"{what} holds what looks like a secret, and the repository keeps it for ever: {_INSTEAD}"


def _is_secret(name: str, value: str) -> bool:
    if _NAMES_SECRET.search(name) and "\n" not in value.strip() and not _NO_SECRET.fullmatch(value.strip()):
        return True
    return bool(_SHAPES.search(value))
