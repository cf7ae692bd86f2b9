"""The contexts of rules: over a cluster all its objects, and its nodes if they are known; over a
change the cluster of the base and that of the head.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from gitops_ds.checks.engine.rule import Rule, pod, section, template
from gitops_ds.core.live import Census
from gitops_ds.core.objects import Body, Key, Path
from gitops_ds.core.sources.bundle import Alternatives, ClusterFacts, Manifest
from gitops_ds.kube.apimachinery import node_eligibility, node_pools
from gitops_ds.kube.apimachinery.node_eligibility import Placement, Placer


@dataclass(frozen=True)
class ClusterContext:
    """The manifests of a cluster, and its nodes; None if they are unknown.

    `expected` has, by agent, the nodes that must run it, and those that must not; `ignored` nodes
    are omitted for every agent. `priorities` are the PriorityClasses of the cluster by name, empty
    if they were not read: a cluster always has some.
    """

    manifests: Mapping[Key, Manifest]
    census: Census | None = None
    expected: Mapping[str, tuple[Alternatives, Alternatives]] = field(default_factory=dict)
    ignored: Alternatives = ()
    priorities: Mapping[str, Body] = field(default_factory=dict)

    @cached_property
    def daemonsets(self) -> tuple[Manifest, ...]:
        """The DaemonSets of the cluster."""
        return tuple(manifest for key, manifest in self.manifests.items() if key.is_daemonset)

    @cached_property
    def placers(self) -> Mapping[Key, Placer]:
        """The node eligibility of each DaemonSet."""
        return {
            daemonset.key: node_eligibility.read(template(daemonset.body))
            for daemonset in self.daemonsets
        }

    @cached_property
    def groups(self) -> node_pools.Groups:
        """The nodes in groups whose labels and taints no DaemonSet distinguishes."""
        return node_pools.equal_groups(
            self.census.nodes if self.census else (), node_pools.keys_of(self.placers.values())
        )

    @cached_property
    def eligible(self) -> Mapping[Key, frozenset[str]]:
        """The names of the eligible nodes, by DaemonSet.

        A DaemonSet is omitted if no nodes are known, or if it requires a label that the declared
        nodes do not define.
        """
        if self.census is None:
            return {}
        return {
            key: frozenset(
                node.name for node in node_pools.placed(placer, self.groups)[Placement.RUN]
            )
            for key, placer in self.placers.items()
            if key not in self.unknown
        }

    @cached_property
    def unknown(self) -> frozenset[Key]:
        """The DaemonSets that require labels or names that declared nodes do not define."""
        census = self.census
        if census is None or not census.declared:
            return frozenset()
        return frozenset(
            key
            for key, placer in self.placers.items()
            if node_pools.keys_of([placer]) - census.keys
            or placer.node_name
            or any(term.names for term in placer.terms or ())
        )

    def placed(self) -> Iterator[tuple[Manifest, frozenset[str]]]:
        """The DaemonSets with known nodes, and those nodes."""
        return (
            (manifest, self.eligible[manifest.key])
            for manifest in self.daemonsets
            if manifest.key in self.eligible
        )


ClusterRule = Rule[ClusterContext]


def pod_spec(manifest: Manifest) -> Mapping[str, Any]:
    """The pod spec of a DaemonSet."""
    return pod(manifest.body)


def pod_labels(manifest: Manifest) -> Mapping[str, str]:
    """The labels of a DaemonSet's pods."""
    labels = section(section(template(manifest.body).get("metadata")).get("labels"))
    return {str(key): str(value) for key, value in labels.items()}


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
