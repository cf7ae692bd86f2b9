"""Groups of equal findings of several clusters and objects, for the text of a report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gitops_ds.model.finding import Finding
from gitops_ds.report.findings import SEVERITY_ORDER

SHOWN_NAMES = 8


class FindingGroup(msgspec.Struct, frozen=True):
    """Findings of one rule at one place with one message; they differ in cluster and object."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """The finding that represents the group."""
        return self.findings[0]

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters, sorted."""
        return tuple(sorted({one.cluster for one in self.findings} - {""}))

    @property
    def objects(self) -> tuple[str, ...]:
        """The objects, sorted."""
        return tuple(sorted({str(one.object) for one in self.findings if one.object}))

    def scope(self, *, several: bool) -> str:
        """The clusters and objects of the group: `in eu-1, us-1: DaemonSet a/b, DaemonSet a/c`.
        Empty for one finding, unless the report has `several` clusters.
        """
        if len(self.findings) == 1 and not several:
            return ""
        clusters = f"in {_names(self.clusters)}" if self.clusters else ""
        objects = _names(self.objects) if len(self.objects) > 1 else ""
        return ": ".join(filter(None, (clusters, objects)))


def grouped(findings: Iterable[Finding]) -> list[FindingGroup]:
    """The groups in the order of their first findings."""
    groups: dict[object, list[Finding]] = {}
    for one in findings:
        place, fix = one.place, one.fix.words if one.fix else ""
        key = (one.rule, one.severity, one.message, place, one.end, fix, one.other)
        groups.setdefault(key, []).append(one)
    return [FindingGroup(tuple(same)) for same in groups.values()]


def by_rule(groups: Iterable[FindingGroup]) -> list[list[FindingGroup]]:
    """The groups of each rule and severity, the most severe and most frequent first."""
    rules: dict[tuple[int, str], list[FindingGroup]] = {}
    for group in groups:
        rules.setdefault((SEVERITY_ORDER[group.first.severity], group.first.rule), []).append(group)
    order = sorted(rules.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1]))
    return [same for _, same in order]


def _names(names: Sequence[str]) -> str:
    shown = names[:SHOWN_NAMES]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more
