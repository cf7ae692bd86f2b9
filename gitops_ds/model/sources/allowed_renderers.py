"""The programs that may run on the files of a repository, and whether one may fetch a chart."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gitops_ds.errors import UsageError

WORDS = ("helm", "kustomize", "network")


class AllowedRenderers(msgspec.Struct, frozen=True):
    """`network`: charts that a source.yaml names elsewhere are fetched; what renders has no network
    even then.
    """

    helm: bool = False
    kustomize: bool = False
    network: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """As `parse` reads them."""
        return tuple(word for word in WORDS if getattr(self, word))


NOTHING = AllowedRenderers()
# For a commit that is to be applied anyway: who may write manifests there may as well write
# templates of manifests.
PROGRAMS = AllowedRenderers(helm=True, kustomize=True)


def parse(words: Iterable[str]) -> AllowedRenderers:
    """What `--allow helm,kustomize` or the setting `render.allow` means; `none` adds nothing.
    Raises UsageError.
    """
    named = [word.strip() for text in words for word in text.split(",") if word.strip()]
    if wrong := [word for word in named if word not in (*WORDS, "none")]:
        raise UsageError(f"{wrong[0]!r} can't be allowed: write {', '.join(WORDS)} or none")
    return AllowedRenderers("helm" in named, "kustomize" in named, "network" in named)
