"""The installed program with a repository whose commits must be signed, on a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import controlplane, signing
from tests.gitservers import Upstream
from tests.service.test_service import following, running, settings, until

pytestmark = [pytest.mark.controlplane, pytest.mark.system]
OBJECT = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: signed, namespace: default}\ndata: {level: "
    "%s}\n"
)


def drift(api_server: controlplane.ControlPlane) -> None:
    """Changes the object manually."""
    api_server.kubectl(
        "patch", "configmap", "signed", "--type=merge", "-p", '{"data": {"level": "manual"}}'
    )


def test_only_signed_commits_are_applied_and_an_unsigned_one_leaves_the_last_good_one(
    tmp_path: Path, api_server: controlplane.ControlPlane
) -> None:
    upstream = Upstream(tmp_path / "fleet")
    ada, eve = (
        signing.ssh_signer(tmp_path, name) for name in ("ada@example.com", "eve@example.com")
    )
    allowed = tmp_path / "allowed_signers"
    allowed.write_bytes(ada.allowed())
    verify = {"mode": "all", "allowedSignersFile": str(allowed)}
    repository = following(upstream, branch="main", verify=verify)
    options = settings(tmp_path, repository=repository)

    def commit(level: str, *config: str) -> str:
        (upstream.work / "agent.yaml").write_text(OBJECT % level)
        return signing.commit(upstream, level, *config)

    def level() -> str:
        body = api_server.read("default", "configmaps", "signed")
        return str(body["data"]["level"]) if body else ""

    def events(reason: str) -> list[str]:
        body = api_server.items("service-test", "events", fieldSelector=f"reason={reason}")
        return [event["message"] for event in body]

    commit("before", *ada.config())
    with running(tmp_path, api_server, *options) as (_, log):
        until(lambda: level() == "before", log.read_text)
        good = commit("good", *ada.config())
        until(lambda: level() == "good", log.read_text)
        assert f"commit {good[:12]} is signed by ada@example.com with SHA256:" in log.read_text()
        bad = commit("bad")
        until(lambda: "is not signed" in log.read_text(), log.read_text)
        assert (
            f"commit {bad[:12]} ('bad' by Ada <ada@example.com>) is not signed" in log.read_text()
        )
        # A signed commit on top does not make good what is below it.
        commit("on top", *ada.config())
        until(
            lambda: any(good[:12] in line for line in events("SourceVerified")),
            lambda: str(events("SourceVerified")),
        )
        until(
            lambda: any("is not signed" in line for line in events("VerificationFailed")),
            log.read_text,
        )
        # Meanwhile, drift is corrected to the last good commit.
        drift(api_server)
        until(lambda: level() == "good", log.read_text)
        assert log.read_text().count("is not signed") == 1
    # A service that starts while the tip is bad continues from the last good one, too.
    drift(api_server)
    with running(tmp_path, api_server, *options) as (_, log):
        until(lambda: level() == "good", log.read_text)
        # The line without the bad commit, signed by a stranger, who is then trusted: no restart.
        upstream.git("reset", "--quiet", "--hard", good)
        commit("stranger", *eve.config())
        until(lambda: "is not in the keys of repository.verify" in log.read_text(), log.read_text)
        assert level() == "good"
        allowed.write_bytes(ada.allowed() + eve.allowed())
        until(lambda: level() == "stranger", log.read_text)
