"""The programs that may run on the files of a repository, and whether one may fetch a chart."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gitops_ds.errors import UsageError

WORDS = ("helm", "kustomize", "network")


class AllowedRenderers(msgspec.Struct, frozen=True):
    """`network`: remote charts of a source.yaml are fetched; the rendering programs never have
    network.
    """

    helm: bool = False
    kustomize: bool = False
    network: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words that `parse` accepts."""
        return tuple(word for word in WORDS if getattr(self, word))


NOTHING = AllowedRenderers()
# For a commit to be applied: users who may write manifests there may write templates of manifests
# too.
PROGRAMS = AllowedRenderers(helm=True, kustomize=True)


def parse(words: Iterable[str]) -> AllowedRenderers:
    """The value of `--allow helm,kustomize` or of the setting `render.allow`; `none` adds nothing.
    Raises UsageError.
    """
    named = [word.strip() for text in words for word in text.split(",") if word.strip()]
    if wrong := [word for word in named if word not in (*WORDS, "none")]:
        raise UsageError(f"{wrong[0]!r} can't be allowed: write {', '.join(WORDS)} or none")
    return AllowedRenderers("helm" in named, "kustomize" in named, "network" in named)
