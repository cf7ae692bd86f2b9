"""Results of earlier runs for files and objects, by their content: they save work and change no
result.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

import msgspec

from gitops_ds.model.objects import Digest


class CachedResults(msgspec.Struct, frozen=True, eq=False):
    """Results of the same version of gitops-ds; the caller is responsible for them. Compared by
    identity.

    `files` holds, by the sha256 of a file's bytes, its objects as `render.drafts` writes them, for
    files without findings. `clean` holds, by the circumstances of a check
    (`validate.check.circumstances`), the objects without findings.
    """

    files: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    clean: Mapping[str, Set[Digest]] = msgspec.field(default_factory=dict)


NOTHING: Final = CachedResults()
