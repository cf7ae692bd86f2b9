"""The order in which the clusters of a repository apply a commit (`after` of clusters/NAME.yaml),
and the report of each: its commit, and whether that commit is proved there.

The service of the cluster publishes it; other clusters and people read it. All times are seconds
since 1970 by the clock of the cluster.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from gitops_ds.core import plain_text
from gitops_ds.core.objects import CommitId
from gitops_ds.core.values import replace

VERSION = 1
LONGEST = 65_536  # bytes of a report
KEPT = 10  # proved commits
_MESSAGE = 500  # characters
_URL = 2048
# Checked, as another cluster's credentials wrote them: a commit is an argument of Git, times and
# counts are printed.
ReportedCommit = Annotated[CommitId, msgspec.Meta(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})?\Z")]
_LATEST = 1e11  # in the year 5138
ReportedCount = Annotated[int, msgspec.Meta(ge=0, le=10**9)]


class ClusterState(StrEnum):
    """PROVED: the applied commit is proved. FAILED: an agent failed, or a rollout is halted."""

    PROVED = "Proved"
    PROGRESSING = "Progressing"
    FAILED = "Failed"


class ProvedCommit(msgspec.Struct, frozen=True):
    """A commit that was applied as a whole, with every agent healthy since a time."""

    commit: ReportedCommit
    at: float


class ClusterReport(msgspec.Struct, frozen=True, rename="camel"):
    """What the service of a cluster reports.

    `condition` is that of the repository, `newest` the newest observed commit of the branch,
    `applied` the last commit that was applied as a whole. `since`: the start of the state. `proved`
    are the last proved commits, oldest first; the cluster was healthy from then until `at`, the
    time of the report. `agents` are the agents of the repository, `well` the healthy ones. `url` is
    the page of the service, empty without one; `path` the followed folder of the repository.
    """

    cluster: str
    state: ClusterState
    at: float
    version: int = VERSION
    condition: str = ""
    message: str = ""
    newest: ReportedCommit = CommitId("")
    applied: ReportedCommit = CommitId("")
    since: float = 0.0
    proved: tuple[ProvedCommit, ...] = ()
    agents: ReportedCount = 0
    well: ReportedCount = 0
    url: Annotated[str, msgspec.Meta(max_length=_URL)] = ""
    path: str = ""

    def passed(self, soak: float) -> frozenset[CommitId]:
        """The commits that stayed healthy for `soak` seconds; none after a failure."""
        if self.state is ClusterState.FAILED:
            return frozenset()
        return frozenset(
            proved_commit.commit
            for proved_commit in self.proved
            if proved_commit.at + soak <= self.at
        )


def encode(report: ClusterReport) -> bytes:
    """The file of a report."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def decode(data: bytes) -> ClusterReport:
    """The report in a file, its texts as one line each. Raises ValueError for one that is not valid
    or of a later version.
    """
    if len(data) > LONGEST:
        raise ValueError(f"larger than {LONGEST} bytes")
    try:
        report = msgspec.json.decode(data, type=ClusterReport)
    except msgspec.DecodeError as error:
        raise ValueError(plain_text.line(str(error), _MESSAGE)) from None
    if report.version != VERSION:
        raise ValueError(f"of version {report.version}, which this version can't read")
    return replace(
        report,
        cluster=plain_text.line(report.cluster),
        condition=plain_text.line(report.condition),
        message=plain_text.line(report.message, _MESSAGE),
        at=_time(report.at),
        since=_time(report.since),
        proved=tuple(
            replace(proved_commit, at=_time(proved_commit.at))
            for proved_commit in report.proved[-KEPT:]
        ),
        url=plain_text.line(report.url, _URL),
    )


def _time(at: float) -> float:
    """The time, or the nearest one that can be printed."""
    return min(max(at, 0.0), _LATEST)


WITHIN = 86_400.0  # seconds


class ClusterBehind(msgspec.Struct, frozen=True):
    """A cluster that waits for another one, and the soak that it requires there, in seconds."""

    name: str
    soak: float = 0.0


class ClusterOrder(msgspec.Struct, frozen=True):
    """The place of one cluster in the order.

    `after` are the clusters before it; each must stay healthy with a commit for `soak` seconds. A
    commit that waits for more than `within` seconds is overdue. `wave` counts from 1, 0 in a cycle;
    `waves` is the number of waves of the repository, 0 without an order. `behind` are the clusters
    that wait for this one.
    """

    after: tuple[str, ...] = ()
    soak: float = 0.0
    within: float = WITHIN
    wave: int = 0
    waves: int = 0
    behind: tuple[ClusterBehind, ...] = ()

    @property
    def exists(self) -> bool:
        """Whether any cluster of the repository waits for another one."""
        return self.waves > 0


NO_ORDER = ClusterOrder()
