"""What earlier runs found out about files and objects, by their content: it spares work and changes
no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from gitops_ds.model.objects import Digest


@dataclass(frozen=True, slots=True, eq=False)
class CachedResults:
    """What the same version of gitops-ds found out; whoever brings it answers for it. Each is only
    itself.

    `files` holds, by the sha256 of a file's bytes, its objects as `render.drafts` writes them:
    files that it had nothing against. `clean` holds, by the circumstances of a check
    (`validate.check.circumstances`), the objects that it had nothing against.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    clean: Mapping[str, Set[Digest]] = field(default_factory=dict)


NOTHING: Final = CachedResults()
