"""A real Gitea sends a signed push event to the service, which applies it without a poll."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests import controlplane
from tests.forges.gitea import Gitea
from tests.service.test_following import agent, image, runs
from tests.service.test_service import running, until

pytestmark = [
    pytest.mark.forge,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("gitea"),
]
SECRET = "a secret of the webhook"


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def requests(port: int, result: str) -> float:
    """How many requests to the webhook ended so, by the service's own metric."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
        lines = reply.read().decode().splitlines()
    words = f'gitopsds_webhook_requests_total{{result="{result}"}} '
    return next((float(line.removeprefix(words)) for line in lines if line.startswith(words)), 0.0)


def settings(directory: Path, bare: Path, namespace: str, port: int) -> Path:
    """The settings of a service that polls once an hour and has a webhook."""
    document = {
        "repository": {"url": str(bare), "allowLocal": True, "branch": "main", "interval": "1h"},
        "cluster": {"namespace": namespace},
        "listen": {
            "address": f"127.0.0.1:{port}",
            "webhook": {"secretFile": str(directory / "secret")},
        },
    }
    file = directory / "settings.yaml"
    file.write_text(json.dumps(document))
    return file


def forged_delivery_is_unauthorized(url: str) -> None:
    forged = urllib.request.Request(url, b"{}", {"X-Gitea-Signature": "0" * 64}, method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(forged, timeout=30)
    assert refused.value.code == 401
    refused.value.close()


def test_a_push_to_gitea_is_applied_because_of_its_webhook(
    tmp_path: Path, gitea: Gitea, api_server: controlplane.ControlPlane
) -> None:
    name = f"hooked-{os.urandom(4).hex()}"
    api_server.kubectl("create", "namespace", name)
    owner, port = f"{name}-owner", controlplane.free_port()
    token = gitea.repository(name)
    work = gitea.clone(f"{owner}/{name}", tmp_path / "work", token)

    def push(tag: int, branch: str = "main") -> str:
        for file, text in agent(name, tag).items():
            (work.directory / file).write_text(text)
        return work.push(branch, f"tag {tag}")

    push(1)
    (tmp_path / "secret").write_text(SECRET + "\n")
    (bare,) = gitea.directory.glob(f"**/{owner}/{name}.git")
    file = settings(tmp_path, bare, f"{name}-home", port)
    with running(
        tmp_path, api_server, "--state-namespace", f"{name}-home", "--settings", str(file)
    ) as (_, log):
        until(lambda: answers(port) and runs(api_server, name) == image(1), log.read_text)
        url = f"http://127.0.0.1:{port}/hook"
        for secret in ("wrong", SECRET):
            config = {"url": url, "content_type": "json", "secret": secret}
            hook = {"type": "gitea", "active": True, "events": ["push"], "config": config}
            gitea.api("POST", f"/repos/{owner}/{name}/hooks", hook, token)
        push(2)
        until(lambda: runs(api_server, name) == image(2), log.read_text)
        # One of each for a push. Gitea's queue may hold the delivery of the first push until hooks
        # exist, and then sends it too.
        until(
            lambda: requests(port, "unauthorized") == requests(port, "accepted") >= 1, log.read_text
        )
        until(lambda: "webhook (gitea) reported a push" in log.read_text(), log.read_text)

        forged_delivery_is_unauthorized(url)
        (tmp_path / "secret").write_text("another secret\n")
        refusals = requests(port, "unauthorized")
        push(3)
        until(lambda: requests(port, "unauthorized") >= refusals + 2, log.read_text)
        (tmp_path / "secret").write_text(f"another secret\n{SECRET}\n")
        push(4)
        until(lambda: runs(api_server, name) == image(4), log.read_text)
        assert "Traceback" not in log.read_text()
