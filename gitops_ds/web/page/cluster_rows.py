"""The clusters of a repository for the page. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gitops_ds.fleet.cluster_overview import ClusterRow
from gitops_ds.model import duration
from gitops_ds.redaction import texts
from gitops_ds.web.page.view import View

_LINKS = ("https://", "http://")


class ShownCluster(msgspec.Struct, frozen=True):
    """One line. `url` is the page of the cluster, empty without a link that a browser may open."""

    name: str
    wave: int
    after: str
    state: str
    commit: str
    newest: str
    agents: str
    since: float
    reported: float
    message: str
    url: str


def contents(view: View) -> Mapping[str, Any]:
    """The values of the template."""
    return {"tab": "Clusters", "rows": [_shown(one) for one in view.clusters()]}


def _shown(row: ClusterRow) -> ShownCluster:
    report, order = row.report, row.order
    soak = f", soak {duration.text(order.soak)}" if order.soak else ""
    url = report.url if report else ""
    return ShownCluster(
        row.name,
        order.wave,
        f"{', '.join(order.after)}{soak}",
        row.state,
        report.applied if report else "",
        report.newest if report else "",
        row.agents(),
        report.since if report else 0.0,
        report.at if report else 0.0,
        texts.words(row.message),
        url if url.startswith(_LINKS) else "",
    )
