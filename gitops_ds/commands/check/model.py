"""The nouns of a check: its options, its input, its result. `run` and `diff` both use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from gitops_ds.model.finding import Finding
from gitops_ds.model.live import Live
from gitops_ds.model.sources.cached_results import NOTHING, CachedResults
from gitops_ds.model.sources.source_tree import SourceTree
from gitops_ds.model.values import replace
from gitops_ds.pipeline.prepare import Prepared

if TYPE_CHECKING:
    from gitops_ds.client.connect import Connection
    from gitops_ds.model.change import Change, FieldChange
    from gitops_ds.model.cluster_nodes import Census
    from gitops_ds.model.objects import Key
    from gitops_ds.pipeline.outlook import Outlook


class CheckOptions(msgspec.Struct, frozen=True):
    """What to check: clusters (none: all), a namespace for objects that name none, the base of a
    change, what is known of nodes.

    `base_from` is the address at which the base is read; empty: in the repository itself.
    `snapshots` are cluster snapshots, each as FILE for every cluster or as CLUSTER=FILE. `live` is
    how to reach the clusters without a snapshot; None: they are not read. `require_live`: a cluster
    that can't be read is an error. `cached` are the results of earlier runs.
    """

    clusters: tuple[str, ...] = ()
    namespace: str = ""
    base: str | None = None
    base_from: str = ""
    snapshots: tuple[str, ...] = ()
    live: Connection | None = None
    require_live: bool = False
    cached: CachedResults = NOTHING


class ClusterChange(msgspec.Struct, frozen=True):
    """What a change does to some clusters, alike in each."""

    clusters: tuple[str, ...]
    changes: tuple[Change, ...]
    outlooks: Mapping[Key, Outlook] = msgspec.field(default_factory=dict)
    census: Census | None = None


class BaseDrift(msgspec.Struct, frozen=True):
    """The drift of a cluster from the base, by object: `old` is the live value, `new` that of the
    base.
    """

    cluster: str
    objects: Mapping[Key, tuple[FieldChange, ...]]


class CheckResult(msgspec.Struct, frozen=True):
    """What was found, and with a base what changes; `prepared` holds a bundle for each cluster.

    `suppressed` are suppressed findings, each with the reason. `drift` is None if no cluster's
    objects are known. `unread` names clusters that could not be read, with the error.
    """

    snapshot: SourceTree
    prepared: tuple[Prepared, ...]
    findings: tuple[Finding, ...]
    changed: tuple[ClusterChange, ...] | None = None
    suppressed: tuple[tuple[Finding, str], ...] = ()
    drift: tuple[BaseDrift, ...] | None = None
    unread: tuple[str, ...] = ()


class CheckInput(msgspec.Struct, frozen=True):
    """What a check looks at: a snapshot, that of the base (None: no change is looked at), and what
    is known of each cluster.

    `live` has the empty name for what holds for every cluster. `again` is the head read a second
    time, for a rule that compares two reads. `unread` names clusters that could not be read, with
    the error.
    """

    head: SourceTree
    base: SourceTree | None
    live: Mapping[str, Live]
    again: SourceTree | None = None
    unread: tuple[str, ...] = ()

    def known(self, cluster: str) -> Live:
        """What is known of a cluster."""
        return self.live.get(cluster) or self.live.get("") or Live()

    def with_head(self, head: SourceTree) -> CheckInput:
        """The same for other files; what charts and kustomizations were made to is as it was
        read.
        """
        return replace(self, head=head, again=self.again and replace(self.again, files=head.files))


def together(prepared: Sequence[Prepared], more: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings of all clusters, each once: what is wrong with a file itself is the same for all
    of them.
    """
    several = len(prepared) > 1
    findings = (*(finding for one in prepared for finding in one.findings), *more)
    return tuple(
        dict.fromkeys(
            finding if finding.object and several else finding.on_cluster("")
            for finding in findings
        )
    )
