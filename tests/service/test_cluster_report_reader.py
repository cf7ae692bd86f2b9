"""Reports on a real repository count with a trusted signature only, where that is required."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gitops_ds.core.objects import CommitId
from gitops_ds.core.rollouts import cluster_report
from gitops_ds.core.rollouts.cluster_report import ClusterReport, ClusterState
from gitops_ds.core.sources.signatures import Mode, Trust
from gitops_ds.core.values import replace
from gitops_ds.rollouts.waves.cluster_waves import ClusterReports
from gitops_ds.service.rollouts import published_reports
from gitops_ds.source.git import address
from gitops_ds.source.git.cluster_refs import ReportRef
from gitops_ds.source.git.commit_writer import Signature
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.signing import Signing, SigningKey
from tests import signing
from tests.gitservers import Upstream

pytestmark = pytest.mark.system
BY = Signature("Bot", "bot@example.com", datetime(2026, 1, 1, tzinfo=UTC))
REPORT = ClusterReport("staging", ClusterState.PROVED, 1.0)
UNSIGNED = {"staging": "its report is not signed by a trusted key"}


def published(
    tmp_path: Path,
    keys: Sequence[Signing | None],
    trust: Trust,
    report: bytes,
    path: str = "",
) -> list[ClusterReports]:
    """What counts after each publication, each with another key."""
    upstream = Upstream(tmp_path / "upstream")
    upstream.commit({"a.yaml": "a: 1\n"})

    async def run() -> list[ClusterReports]:
        where, received, before = address.parse(str(upstream.path), allow_local=True), [], None
        async with Repository(where, tmp_path / "cache") as repository:
            for key in keys:
                ref = ReportRef("staging", CommitId(""), report)
                before = await repository.publish_report(
                    path, ref, before, replace(BY, signing=key)
                )
                names = ["staging", "eu-1"]
                read = await published_reports.read(repository, path, names, trust)
                received.append(published_reports.of(read))
        return received

    return asyncio.run(run())


@pytest.mark.parametrize("mode", [Mode.HEAD, Mode.ALL, Mode.TAG])
def test_a_report_counts_with_a_trusted_signature_only(tmp_path: Path, mode: Mode) -> None:
    (tmp_path / "bot").mkdir()
    (tmp_path / "other").mkdir()
    bot = signing.ssh_signer(tmp_path / "bot", "bot@example.com")
    other = signing.ssh_signer(tmp_path / "other", "other@example.com")
    keys = [None, SigningKey(other.key.read_bytes()), SigningKey(bot.key.read_bytes())]
    data = cluster_report.encode(REPORT)
    unsigned, strange, good = published(tmp_path, keys, Trust(mode, bot.allowed()), data)
    assert unsigned == strange == ClusterReports({}, UNSIGNED)
    assert good == ClusterReports({"staging": REPORT}, {})


def test_a_signed_report_of_another_folder_does_not_count(tmp_path: Path) -> None:
    """A user who may push can copy it to the ref of this folder."""
    bot = signing.ssh_signer(tmp_path, "bot@example.com")
    keys, trust = [SigningKey(bot.key.read_bytes())], Trust(Mode.HEAD, bot.allowed())
    for folder, reports in (("fleets/one", {}), ("fleets/two", {"staging"})):
        report = replace(REPORT, path="fleets/two")
        data = cluster_report.encode(report)
        (tmp_path / folder).mkdir(parents=True)
        [read] = published(tmp_path / folder, keys, trust, data, folder)
        assert read.reports.keys() == set(reports)
        assert read.problems.keys() == {"staging"} - set(reports)
