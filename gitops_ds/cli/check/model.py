"""The nouns of a check: its input, its result. `run` and `base_changes` both use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from gitops_ds.core.finding import Finding
from gitops_ds.core.live import Live
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline.prepare import Prepared, without_repetitions

if TYPE_CHECKING:
    from gitops_ds.core.change import Change, FieldChange
    from gitops_ds.core.live import Census
    from gitops_ds.core.objects import Key
    from gitops_ds.deploy.pipeline.change_forecast import ChangeForecast


class ClusterChange(msgspec.Struct, frozen=True):
    """The changes of some clusters, equal in each."""

    clusters: tuple[str, ...]
    changes: tuple[Change, ...]
    forecasts: Mapping[Key, ChangeForecast] = msgspec.field(default_factory=dict)
    census: Census | None = None


class BaseDrift(msgspec.Struct, frozen=True):
    """The drift of a cluster from the base, by object: `old` is the live value, `new` that of the
    base.
    """

    cluster: str
    objects: Mapping[Key, tuple[FieldChange, ...]]


class CheckResult(msgspec.Struct, frozen=True):
    """The findings, and with a base the changes; `prepared` has a bundle for each cluster.

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
    """The input of a check: a snapshot, that of the base (None: without a change), the data of each
    cluster, the clusters to check (none: all), and the namespace of objects without one.

    `live` has the empty name for the data of all clusters. `again` is a second read of the head,
    for a rule that compares two reads. `unread` names clusters that could not be read, with the
    error.
    """

    head: SourceTree
    base: SourceTree | None
    live: Mapping[str, Live]
    again: SourceTree | None = None
    unread: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    namespace: str = ""

    def known(self, cluster: str) -> Live:
        """The data of a cluster."""
        return self.live.get(cluster) or self.live.get("") or Live()

    def with_head(self, head: SourceTree) -> CheckInput:
        """The same input with other files; the output of charts and kustomizations is unchanged."""
        return replace(self, head=head, again=self.again and replace(self.again, files=head.files))


def together(prepared: Sequence[Prepared], more: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings of all clusters, each once: findings of a file itself are equal for all."""
    several = len(prepared) > 1
    findings = (*(finding for cluster in prepared for finding in cluster.findings), *more)
    return tuple(
        dict.fromkeys(
            finding if finding.object and several else finding.on_cluster("")
            for finding in without_repetitions(findings)
        )
    )
