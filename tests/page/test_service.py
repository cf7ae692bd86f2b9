"""The installed service shows on its page what it applied to a real cluster, and the reports of all
clusters.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gitops_ds.core.rollouts import cluster_report
from gitops_ds.core.rollouts.cluster_report import ClusterState
from tests import controlplane, gitservers
from tests.plan.world import daemonset
from tests.service.test_service import following, read, running, settings, until

pytestmark = [pytest.mark.controlplane, pytest.mark.system]


def test_the_page_shows_what_the_service_applied(
    tmp_path: Path, control_plane: controlplane.ControlPlane
) -> None:
    upstream = gitservers.Upstream(tmp_path / "fleet")
    commit = upstream.commit({"agent.json": json.dumps(daemonset("shown", namespace="default"))})
    port = controlplane.free_port()
    home = f"http://127.0.0.1:{port}"
    with running(
        tmp_path,
        control_plane,
        "-C",
        str(upstream.path),
        "--interval",
        "1s",
        "--listen",
        f"127.0.0.1:{port}",
    ) as (
        _,
        log,
    ):
        until(lambda: "Healthy" in read(f"{home}/agents/default/shown"), log.read_text)
        page = read(f"{home}/agents/default/shown")
        assert str(commit)[:12] in page
        assert "Every node is green" in page
        assert "Every field that Git sets is as Git sets it." in page
        line = r'Applied</span></td>\s*<td><a [^>]*>shown</a></td><td class="words">created</td>'
        assert re.search(line, read(f"{home}/events"))
        assert "shown" in read(f"{home}/commits/{commit}")


FILES = {
    "gitops-ds.yaml": "version: v1\nname: cluster-page\nmanifests: [manifests/]\n",
    "clusters/staging.yaml": "namespace: default\n",
    "clusters/eu-1.yaml": "namespace: default\nafter: {clusters: [staging], soak: 1h}\n",
    "manifests/settings.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cluster-page}\n",
}
URL = "https://staging.example.com/ds/"


def test_the_page_of_a_service_shows_the_reports_of_all_clusters(
    tmp_path: Path, api_server: controlplane.ControlPlane
) -> None:
    upstream = gitservers.Upstream(tmp_path / "fleet")
    commit = upstream.commit(FILES)
    port = controlplane.free_port()
    options = settings(
        tmp_path,
        repository=following(upstream, push=True),
        cluster={"name": "staging"},
        listen={"address": f"127.0.0.1:{port}", "page": {"url": URL}},
    )
    with running(tmp_path, api_server, *options) as (process, log):
        until(lambda: commit[:12] in read(f"http://127.0.0.1:{port}/clusters"), log.read_text)
        html = read(f"http://127.0.0.1:{port}/clusters")
        assert process.poll() is None
        assert "Traceback" not in log.read_text()
    assert f'<a href="{URL}" rel="noreferrer">staging</a>' in html
    assert ">staging, soak 1h</td>" in html
    assert "no report was published" in html
    text = upstream.git("show", "refs/gitops-ds/clusters/staging:cluster.json")
    report = cluster_report.decode(text.encode())
    assert (report.state, report.applied, report.url) == (ClusterState.PROVED, commit, URL)
