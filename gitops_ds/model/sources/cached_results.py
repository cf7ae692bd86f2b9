"""Results of earlier runs for files and objects, by their content: they save work and change no
result.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from gitops_ds.model.objects import Digest


@dataclass(frozen=True, slots=True, eq=False)
class CachedResults:
    """Results of the same version of gitops-ds; the caller is responsible for them. Compared by
    identity.

    `files` holds, by the sha256 of a file's bytes, its objects as `render.drafts` writes them, for
    files without findings. `clean` holds, by the circumstances of a check
    (`validate.check.circumstances`), the objects without findings.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    clean: Mapping[str, Set[Digest]] = field(default_factory=dict)


NOTHING: Final = CachedResults()
