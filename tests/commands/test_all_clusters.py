"""`gitops-ds get --all-clusters`: the clusters in their order, by their reports in Git."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from gitops_ds.core.objects import CommitId
from gitops_ds.core.rollouts import cluster_report
from gitops_ds.core.rollouts.cluster_report import ClusterReport, ClusterState, ProvedCommit
from tests import signing
from tests.cli.commands import invoked
from tests.gitservers import GIT_ENVIRONMENT, Upstream

FILES = {
    "gitops-ds.yaml": "version: v1\nname: fleet\n",
    "clusters/staging.yaml": "environment: production\n",
    "clusters/eu-1.yaml": "environment: production\nafter: {clusters: [staging], soak: 1h}\n",
    "clusters/au-1.yaml": "environment: production\nafter: [staging]\n",
    "environments/production.yaml": "values: {}\n",
    "agents/agent/daemonset.yaml": "metadata: {name: agent}\n",
}


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    repository = Upstream(tmp_path / "fleet")
    repository.commit(FILES)
    return repository


def publish(upstream: Upstream, report: ClusterReport, name: str = "", *signing: str) -> None:
    """A report as a service publishes it; `signing` are git's words for its signature."""
    blob = upstream.git("hash-object", "-w", "--stdin", input=cluster_report.encode(report))
    tree = upstream.git("mktree", input=f"100644 blob {blob}\tcluster.json\n".encode())
    sign = ("-S",) if signing else ()
    commit = upstream.git(*signing, "commit-tree", *sign, tree, "-m", "report")
    upstream.git("update-ref", f"refs/gitops-ds/clusters/{name or report.cluster}", commit)


def get(*words: str) -> Result:
    result = invoked("get", "--all-clusters", *words)
    assert result.exit_code == 0, result.output
    return result


def reports(upstream: Upstream, now: float) -> tuple[CommitId, CommitId]:
    old = CommitId(upstream.git("rev-parse", "main"))
    new = CommitId(upstream.commit(FILES, "a change"))
    proved = (ProvedCommit(old, now - 9000), ProvedCommit(new, now - 600))
    common: dict[str, Any] = {"at": now - 300, "newest": new, "agents": 2, "well": 2}
    staging = ClusterReport(
        "staging",
        ClusterState.PROVED,
        condition="Synced",
        message="commit is proved",
        applied=new,
        since=now - 600,
        proved=proved,
        url="https://staging.example.com/",
        **common,
    )
    eu1 = ClusterReport(
        "eu-1",
        ClusterState.PROVED,
        condition="Waiting",
        message=f"commit {new[:12]} waits for cluster staging: soak of 1h",
        applied=old,
        since=now - 9000,
        proved=proved[:1],
        **common,
    )
    publish(upstream, staging)
    publish(upstream, eu1)
    return old, new


def test_the_clusters_are_listed_by_wave_with_their_reports(upstream: Upstream) -> None:
    old, new = reports(upstream, time.time())
    lines = get("-C", str(upstream.path)).output.splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["CLUSTER", "WAVE", "STATE", "COMMIT", "SINCE", "AGENTS", "REPORTED"],
        ["staging", "1", "Proved", new[:12], "10m", "2/2", "5m", "ago"],
        ["au-1", "2", "Unknown", "<none>", "<none>", "<none>", "<none>"],
        ["eu-1", "2", "Proved", old[:12], "150m", "2/2", "5m", "ago"],
    ]
    assert lines[4:] == [
        "",
        "au-1: no report was published",
        f"eu-1: commit {new[:12]} waits for cluster staging: soak of 1h",
    ]
    wide = get("-C", str(upstream.path), "-o", "wide").output.splitlines()
    assert wide[0].endswith("NEWEST         CONDITION   MESSAGE")
    assert len(wide) == 4


def test_json_has_every_field(upstream: Upstream) -> None:
    _, new = reports(upstream, 1_767_225_600.0)
    publish(
        upstream,
        ClusterReport("staging", ClusterState.PROVED, 1.0, proved=(ProvedCommit(new, 0.0),)),
        "au-1",
    )
    document = json.loads(get("-C", str(upstream.path), "-o", "json").output)
    assert document["kind"] == "ClusterReportList"
    staging, au1, eu1 = document["items"]
    assert staging["url"] == "https://staging.example.com/"
    assert staging["proved"][-1] == {"commit": new, "at": "2025-12-31T23:50:00Z"}
    assert staging["reported"] == "2025-12-31T23:55:00Z"
    place = {"after": ["staging"], "soak": 3600.0, "within": 86400.0, "wave": 2}
    assert place.items() <= eu1.items()
    assert au1["state"] == "Unknown"
    assert au1["message"] == "its report is that of cluster staging"
    assert au1["proved"] == []


@pytest.mark.slow
def test_signatures_are_verified_with_the_settings_of_a_service(
    upstream: Upstream, tmp_path: Path
) -> None:
    service = signing.ssh_signer(tmp_path, "service@example.com")
    stranger = signing.ssh_signer(tmp_path, "stranger@example.com")
    keys, file = tmp_path / "allowed", tmp_path / "settings.yaml"
    keys.write_bytes(service.allowed())
    verify = {"allowedSignersFile": str(keys)}
    file.write_text(
        json.dumps({"repository": {"url": "https://git.example.com/a/b", "verify": verify}})
    )
    words = ("-C", str(upstream.path))
    reports(upstream, time.time())
    assert "unverified" not in get(*words).output
    items = json.loads(get(*words, "--settings", str(file), "-o", "json").output)["items"]
    assert {one["verified"] for one in items} == {False}
    assert {one["state"] for one in items} == {"Unknown"}

    for name, signer in (("staging", service), ("eu-1", stranger)):
        report = ClusterReport(name, ClusterState.PROVED, time.time())
        publish(upstream, report, "", *signer.config())
    result = get(*words)
    assert result.stdout.count("Proved (unverified)") == 2
    assert "--settings FILE verifies them" in result.stderr
    items = json.loads(get(*words, "--settings", str(file), "-o", "json").output)["items"]
    assert [(one["cluster"], one["verified"], one["state"]) for one in items] == [
        ("staging", True, "Proved"),
        ("au-1", False, "Unknown"),
        ("eu-1", False, "Unknown"),
    ]
    assert items[2]["message"] == "its report is not signed by a trusted key"
    assert "unverified" not in get(*words, "--settings", str(file)).output


def test_a_clone_reads_its_remote(upstream: Upstream, tmp_path: Path) -> None:
    _, new = reports(upstream, time.time())
    clone = tmp_path / "clone"
    words = ("git", "clone", "--quiet", str(upstream.path), str(clone))
    subprocess.run(words, env=GIT_ENVIRONMENT, check=True)
    (staging, *_) = json.loads(get("-C", str(clone), "-o", "json").output)["items"]
    assert staging["appliedCommit"] == new


def test_a_repository_without_clusters_has_none(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path / "fleet")
    upstream.commit({"a.yaml": "a: 1\n"})
    expected = "No clusters found: the repository has no file in clusters/.\n"
    assert get("-C", str(upstream.path)).output == expected


def test_without_an_order_the_clusters_have_no_wave(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path / "fleet")
    upstream.commit({**FILES, "clusters/eu-1.yaml": "{}\n", "clusters/au-1.yaml": "{}\n"})
    rows = get("-C", str(upstream.path)).output.splitlines()
    assert rows[1].split()[:3] == ["au-1", "-", "Unknown"]


def test_check_and_plan_show_the_waves(upstream: Upstream) -> None:
    words = ("check", upstream.work, "--no-cache")
    expected = "note: commits reach the clusters in 2 waves: staging; au-1, eu-1"
    assert expected in invoked(*words).output
    waves = json.loads(invoked(*words, "-o", "json").stdout)["waves"]
    place = {"wave": 2, "waves": 2, "after": ["staging"], "soak": 3600.0, "within": 86400.0}
    assert waves["eu-1"] == place
    plan = ("plan", upstream.work, "--cluster", "eu-1", "--simulate", "3")
    assert "Cluster: eu-1, wave 2 of 2, after staging (soak 1h)\n" in invoked(*plan).output
    assert json.loads(invoked(*plan, "-o", "json").stdout)["order"] == place
