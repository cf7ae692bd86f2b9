"""The files that a browser loads besides pages. Their names contain the hash of their content, so
that they can be cached indefinitely.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from importlib import resources

import msgspec

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class Asset(msgspec.Struct, frozen=True):
    """A file, plain and with gzip."""

    type: str
    data: bytes
    small: bytes


def _load() -> tuple[Mapping[str, Asset], Mapping[str, str]]:
    assets, paths = {}, {}
    for name in ("page.css", "page.js", "icon.svg"):
        stem, _, ending = name.partition(".")
        data = (resources.files("gitops_ds.web.page") / "static" / name).read_bytes()
        path = f"static/{stem}-{hashlib.sha256(data).hexdigest()[:16]}.{ending}"
        assets[path] = Asset(_TYPES[ending], data, gzip.compress(data, 9, mtime=0))
        paths["icon" if ending == "svg" else ending] = path
    return assets, paths


ASSETS, PATHS = _load()
