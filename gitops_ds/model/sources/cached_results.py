"""Results of earlier runs for files and objects, by content. They only save time."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

import msgspec

from gitops_ds.model.objects import Digest


class CachedResults(msgspec.Struct, frozen=True, eq=False):
    """Results of the same version of gitops-ds, which the caller ensures. Compared by identity.

    `files` has, by the sha256 of a file's bytes, its objects as `render.parsed_objects` encodes
    them, for files without findings. `clean` has, by the circumstances of a check
    (`checks.engine.check.circumstances`), the objects without findings.
    """

    files: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    clean: Mapping[str, Set[Digest]] = msgspec.field(default_factory=dict)


NOTHING: Final = CachedResults()
