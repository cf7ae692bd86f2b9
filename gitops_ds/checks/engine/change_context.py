"""The context of rules over a change: the objects of a cluster in the base and in the head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gitops_ds.checks.engine.cluster_context import ClusterContext
from gitops_ds.checks.engine.rule import Rule, template
from gitops_ds.model.live import Census
from gitops_ds.model.objects import Body, Key, Path
from gitops_ds.model.sources.bundle import ClusterFacts, Manifest


class ChangeSides(msgspec.Struct, frozen=True):
    """A cluster before and after a change.

    `drift`: the fields of the cluster that differ from the base, by object; empty without a
    connection to the cluster.
    """

    before: ClusterContext
    after: ClusterContext
    drift: Mapping[Key, tuple[Path, ...]] = msgspec.field(default_factory=dict)

    @property
    def base(self) -> Mapping[Key, Manifest]:
        """The manifests before."""
        return self.before.manifests

    @property
    def head(self) -> Mapping[Key, Manifest]:
        """The manifests after."""
        return self.after.manifests

    @property
    def census(self) -> Census | None:
        """The nodes of the cluster; None if they are unknown."""
        return self.after.census

    def both(self) -> Iterator[tuple[Key, Body, Body]]:
        """The DaemonSets of both sides, before and after."""
        for key, manifest in self.head.items():
            if key.is_daemonset and key in self.base:
                yield key, self.base[key].body, manifest.body

    def rolling(self) -> Iterator[tuple[Key, Body, Body]]:
        """The changed pod templates of the DaemonSets of both sides, before and after."""
        for key, before, after in self.both():
            if self.base[key].digest != self.head[key].digest and template(before) != template(
                after
            ):
                yield key, template(before), template(after)

    def gone(self) -> list[Key]:
        """The DaemonSets that the change removes."""
        return [key for key in self.base if key.is_daemonset and key not in self.head]

    def come(self) -> list[Key]:
        """The DaemonSets that the change adds."""
        return [key for key in self.head if key.is_daemonset and key not in self.base]


class ClusterStep(msgspec.Struct, frozen=True):
    """The effect of a change on one cluster of a repository."""

    facts: ClusterFacts
    sides: ChangeSides


# A violation of an object that only the base has names that object.
ChangeRule = Rule[ChangeSides]
# A violation names the cluster as well.
PromotionRule = Rule[Iterable[ClusterStep]]
