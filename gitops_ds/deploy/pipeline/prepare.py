"""Renders and checks a snapshot. The same for the service, the command line and a pull request."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gitops_ds.checks.engine import check
from gitops_ds.checks.engine.contexts import ChangeSides, ClusterContext
from gitops_ds.core import spans
from gitops_ds.core.finding import Finding
from gitops_ds.core.live import Census, Live
from gitops_ds.core.objects import Digest
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import node_pools
from gitops_ds.source import rules
from gitops_ds.source.render import bundle as rendering
from gitops_ds.yaml.documents import AMBIGUOUS

_OF_SCHEMA = frozenset(
    rule.id
    for rule in (rules.UNKNOWN_FIELD, rules.WRONG_TYPE, rules.MISSING_FIELD, rules.INVALID_VALUE)
)


class Prepared(msgspec.Struct, frozen=True):
    """A bundle and its findings, ordered by place. `deployable`: without a blocking finding.

    `cluster_context` is the bundle with the known nodes of the cluster, if nodes were requested.
    `clean` are the objects without a finding.
    """

    bundle: Bundle
    findings: tuple[Finding, ...]
    cluster_context: ClusterContext
    clean: frozenset[Digest] = frozenset()

    @property
    def census(self) -> Census | None:
        """The known nodes of the cluster."""
        return self.cluster_context.census

    @property
    def deployable(self) -> bool:
        """Whether no finding blocks the commit; advice never does."""
        return not any(finding.refused for finding in self.findings)


def prepare(
    snapshot: SourceTree,
    *,
    cluster: str = "",
    namespace: str = "",
    live: Live | None = None,
    files: bool = True,
    advice: bool = True,
) -> Prepared:
    """Renders and checks the snapshot for one cluster.

    With `live` the rules over nodes run too: with its nodes, else with those that the cluster's
    file declares. Without `files`: the repository's own files were already checked for another
    cluster. Without `advice`: only blocking rules run, which takes less time and memory. Raises
    UsageError for an unknown cluster.
    """
    with spans.span("render"):
        bundle = rendering.render(snapshot, cluster=cluster, namespace=namespace)
    ignored = (bundle.cluster.ignore,) if bundle.cluster.ignore else ()
    census = node_pools.census(bundle.cluster, live) if live is not None else None
    objects = live.objects if live else {}
    priorities = {
        key.name: body
        for key, body in objects.items()
        if (key.group, key.kind) == ("scheduling.k8s.io", "PriorityClass")
    }
    cluster_context = ClusterContext(bundle.manifests, census, bundle.expected, ignored, priorities)
    # reading and rendering report findings without regard to the rules that a repository disables
    reported = (
        finding
        for finding in bundle.findings
        if finding.refused or bundle.rules.get(finding.rule, True)
    )
    with spans.span("check"):
        every = (
            *reported,
            *check.check(bundle, snapshot, cluster_context, files=files, advice=advice),
        )
        shown = (finding for finding in every if advice or finding.refused)
        findings = dict.fromkeys(without_repetitions(shown))
    blamed = {finding.object for finding in findings}
    clean = frozenset(
        manifest.digest for key, manifest in bundle.manifests.items() if key not in blamed
    )
    return Prepared(bundle, tuple(sorted(findings, key=_order)), cluster_context, clean)


def without_repetitions(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for a mistake: without the ambiguity of a scalar (`0644`: 420 or "0644") that the
    type of its field ends, and without the rollout policy that can't be read because of a finding
    in its file.
    """
    every = list(findings)
    typed = {finding.place for finding in every if finding.rule == rules.WRONG_TYPE.id}
    misread = {
        finding.place.file for finding in every if finding.place and finding.rule in _OF_SCHEMA
    }
    return [
        finding
        for finding in every
        if not (finding.rule == AMBIGUOUS.id and finding.place in typed)
        and not (
            finding.rule == rules.IMPOSSIBLE.id and finding.place and finding.place.file in misread
        )
    ]


def compared(sides: ChangeSides, head: Prepared, snapshot: SourceTree) -> Prepared:
    """The head with the findings about the change."""
    findings = dict.fromkeys((*head.findings, *check.compare(sides, head.bundle, snapshot)))
    return replace(head, findings=tuple(sorted(findings, key=_order)))


def _order(finding: Finding) -> tuple[str, int, int, str, str]:
    place = finding.place
    return (
        place.file if place else "",
        place.line if place else 0,
        place.column if place else 0,
        finding.rule,
        finding.message,
    )
