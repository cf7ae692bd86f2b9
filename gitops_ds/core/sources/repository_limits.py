"""The limits of a repository: time, size and number of files, and the programs that may run."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gitops_ds.core.errors import UsageError

MIB = 1 << 20


class RepositoryLimits(msgspec.Struct, frozen=True):
    """Caps on one repository.

    `seconds` for each command of git, `bytes` for the pack of one fetch and for the packs of the
    local copy together; `snapshot_bytes` for all files of a commit (None: by the memory limit),
    `files` for their number, `file_bytes` for one of them.
    """

    seconds: float = 120.0
    bytes: int = 512 * MIB
    files: int = 10_000
    file_bytes: int = 4 * MIB
    snapshot_bytes: int | None = None


DEFAULT = RepositoryLimits()

WORDS = ("helm", "kustomize", "network")
# The time of all programs of a commit together, as a multiple of the limit of one.
TOGETHER = 5


class AllowedRenderers(msgspec.Struct, frozen=True):
    """`network`: remote charts of a source.yaml are fetched; the rendering programs never have
    network.
    `seconds` is the time limit of one program, wall time and CPU time; a render takes about a
    second.
    """

    helm: bool = False
    kustomize: bool = False
    network: bool = False
    seconds: float = 60.0

    @property
    def words(self) -> tuple[str, ...]:
        """The words that `parse_allowed` accepts."""
        return tuple(word for word in WORDS if getattr(self, word))


NO_PROGRAMS = AllowedRenderers()
# For a commit to be applied: users who may write manifests there may write templates of manifests
# too.
PROGRAMS = AllowedRenderers(helm=True, kustomize=True)


def parse_allowed(words: Iterable[str]) -> AllowedRenderers:
    """The value of `--allow helm,kustomize` or of the setting `render.allow`; `none` adds nothing.
    Raises UsageError.
    """
    named = [word.strip() for text in words for word in text.split(",") if word.strip()]
    if wrong := [word for word in named if word not in (*WORDS, "none")]:
        raise UsageError(f"{wrong[0]!r} can't be allowed: write {', '.join(WORDS)} or none")
    return AllowedRenderers("helm" in named, "kustomize" in named, "network" in named)
