"""The installed service shows on its page what it applied to a real cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests import controlplane, gitservers
from tests.plan.world import daemonset
from tests.service.test_service import read, running, until

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
