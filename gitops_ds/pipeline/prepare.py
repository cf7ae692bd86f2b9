"""From a snapshot to what may be deployed: render, then validate. The same for the service, the command line and a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gitops_ds.model.bundle import Bundle
from gitops_ds.model.finding import Finding
from gitops_ds.model.live import Node
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.render import bundle as rendering
from gitops_ds.validate import check


@dataclass(frozen=True, slots=True)
class Prepared:
    """A bundle and everything to be said about it, ordered by place. `deployable`: nothing that the API server would refuse."""

    bundle: Bundle
    findings: tuple[Finding, ...]

    @property
    def deployable(self) -> bool:
        """Whether no finding stands in the way; advice never does."""
        return not any(finding.refused for finding in self.findings)


def prepare(snapshot: Snapshot, *, cluster: str = "", namespace: str = "", nodes: Sequence[Node] | None = None) -> Prepared:
    """Renders and checks the snapshot for one cluster, whose `nodes` may be known.

    Raises UsageError for a cluster that the repository doesn't describe.
    """
    bundle = rendering.render(snapshot, cluster=cluster, namespace=namespace)
    found = dict.fromkeys((*bundle.findings, *check.check(bundle, snapshot, nodes)))
    return Prepared(bundle, tuple(sorted(found, key=_order)))


def compared(base: Prepared, head: Prepared, snapshot: Snapshot) -> Prepared:
    """The head with what is to be said about the change as well."""
    found = dict.fromkeys((*head.findings, *check.compare(base.bundle, head.bundle, snapshot)))
    return Prepared(head.bundle, tuple(sorted(found, key=_order)))


def _order(finding: Finding) -> tuple[str, int, int, str, str]:
    place = finding.place
    return (place.file if place else "", place.line if place else 0, place.column if place else 0, finding.rule, finding.message)
