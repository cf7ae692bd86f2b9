"""A bundle as YAML with the same value in every parser: strings that are not certainly plain are
quoted.

No library is used, for speed (a hundred times that of the round-trip writer), and because the
scalar rules of YAML 1.1 (kubectl) and 1.2 (most tools) differ: `yes`, `0644`, `12:30:45`, `1e3`.
The output is deterministic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gitops_ds.core.sources.bundle import Bundle, Manifest

# The order of an apply; other kinds come last.
_ORDER = (
    "Namespace",
    "CustomResourceDefinition",
    "PriorityClass",
    "ServiceAccount",
    "ClusterRole",
    "Role",
    "ClusterRoleBinding",
    "RoleBinding",
    "ConfigMap",
    "Secret",
    "Service",
    "DaemonSet",
)
_RANK = {kind: rank for rank, kind in enumerate(_ORDER)}
_FIRST_KEYS = ("apiVersion", "kind", "metadata")

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(?::[A-Za-z0-9_./-]+)*", re.ASCII)
_WORDS = frozenset(
    ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"]
)
# YAML's printable characters, without the line breaks of YAML 1.1 (U+0085, U+2028, U+2029), the
# byte order mark, and the overrides of the direction (https://trojansource.codes).
_UNPRINTABLE = (
    "[^\\n\\t\\x20-\\x7e\\xa0-\\u2027\\u202f-\\u2065\\u206a-\\ud7ff\\ue000-\\ufefe\\uff00-\\ufffd"
    "\\U00010000-\\U0010ffff]"
)


def as_yaml(bundle: Bundle, *, secrets: bool = False) -> str:
    """The manifests as one stream of documents, in the right order for `kubectl apply -f -`.

    Without `secrets`, a comment replaces each Secret: placeholders for its values could be applied
    by mistake.
    """
    manifests = sorted(bundle.manifests.values(), key=lambda m: (rank(m.key.kind), m.key))
    return "".join(_document(manifest, secrets=secrets) for manifest in manifests)


def rank(kind: str) -> int:
    """The place of a kind in the order of an apply."""
    return _RANK.get(kind, len(_ORDER))


def manifest(body: Mapping[str, Any]) -> str:
    """An object in the usual order: version, kind and metadata first."""
    first = {key: body[key] for key in _FIRST_KEYS if key in body}
    return dump(first | {key: value for key, value in body.items() if key not in first})


def dump(value: Any) -> str:
    """One value, a mapping or a list, as block YAML that ends with a line break."""
    return (
        "".join(_block(value, ""))
        if isinstance(value, Mapping | list) and value
        else _scalar(value) + "\n"
    )


def _document(one: Manifest, *, secrets: bool) -> str:
    head = f"---\n# {_comment(one.origin.base.file)}\n"
    if one.key.group == "" and one.key.kind == "Secret" and not secrets:
        return f"{head}# {_comment(str(one.key))}: not printed, as it is a Secret\n"
    return head + manifest(one.body)


def _comment(text: str) -> str:
    return text if text.isprintable() else orjson.dumps(text).decode()


def _block(value: Mapping[str, Any] | list[Any], indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield indent + _key(key) + ":"
            yield from _item(item, indent, list_indent=indent)
    else:
        for item in value:
            yield indent + "-"
            if isinstance(item, Mapping | list) and item:
                # The first line of an item is on the line of its dash.
                yield " " + "".join(_block(item, indent + "  "))[len(indent) + 2 :]
            else:
                yield from _item(item, indent, list_indent=indent)


def _item(item: Any, indent: str, *, list_indent: str) -> Iterator[str]:
    if isinstance(item, Mapping) and item:
        yield "\n"
        yield from _block(item, indent + "  ")
    elif isinstance(item, list) and item:
        yield "\n"
        yield from _block(item, list_indent)
    elif isinstance(item, str) and "\n" in item and (literal := _literal(item, indent + "  ")):
        yield literal
    else:
        yield " " + _scalar(item) + "\n"


def _key(key: str) -> str:
    """Some parsers need the `?` form for a key of more than 128 characters, but only if it spans
    lines; quotes are enough.
    """
    return _scalar(key)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        return re.sub(_UNPRINTABLE, lambda m: _escape(m[0]), orjson.dumps(value).decode())
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value)
        # In YAML 1.1 a number with an exponent needs a dot.
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    return str(value) if isinstance(value, int) else ("{}" if isinstance(value, Mapping) else "[]")


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _literal(text: str, indent: str) -> str:
    """The text as a literal block; empty if it needs quotes: leading blanks, control characters,
    only blank lines.
    """
    if text[0] in " \t\n" or re.search(_UNPRINTABLE, text) or not text.strip():
        return ""
    body = text.rstrip("\n")
    breaks = len(text) - len(body)
    chomp = "-" if breaks == 0 else "" if breaks == 1 else "+"
    lines = [indent + line if line else "" for line in body.split("\n")] + [""] * max(breaks - 1, 0)
    return f" |{chomp}\n" + "\n".join(lines) + "\n"
