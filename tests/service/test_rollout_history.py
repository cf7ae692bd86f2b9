"""The history of an agent has each halted rollout in order: the bad commit, where and
why it was halted, the commit that replaced it, and by whom; also after a restart of the service.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane, gitservers, schemas
from tests.cluster.program import in_this_process
from tests.service.test_rollout_revert import Fleet, fleet, image, policy
from tests.service.test_service import read, running, until

__all__ = ["fleet"]
pytestmark = [pytest.mark.controlplane, pytest.mark.system]


def history(of: Fleet, *words: str) -> str:
    where = ("--kubeconfig", of.plane.kubeconfig, "--state-namespace", "service-test")
    ended = in_this_process(
        ("history", "ds/agent", "-n", of.space, *words, *where),
        of.directory,
        {**gitservers.GIT_ENVIRONMENT, "GITOPS_DS_CACHE": str(of.directory / "mine")},
    )
    assert ended.code == 0, ended.err
    return ended.out


def halts(of: Fleet, *words: str) -> list[dict[str, Any]]:
    document = json.loads(history(of, "-o", "json", *words))
    schemas.check(document, "history")
    found: list[dict[str, Any]] = document["halts"]
    return found


def test_the_history_has_the_halted_commit_its_place_and_its_revert(fleet: Fleet) -> None:
    port = controlplane.free_port()
    fleet.upstream.commit(fleet.files(1, policy()), "Agent 1")
    listen = {"address": f"127.0.0.1:{port}", "page": {"url": f"http://127.0.0.1:{port}"}}
    file = Path(fleet.settings(push=True))
    file.write_text(json.dumps({**json.loads(file.read_text()), "listen": listen}))
    options = ("--settings", str(file))
    clone = ("-C", str(fleet.upstream.path))
    with running(fleet.directory, fleet.plane, *options) as (_, log):
        until(lambda: fleet.image() == image(1), log.read_text)
        assert (halts(fleet), history(fleet).count("HALTED")) == ([], 0)
        bad = fleet.upstream.commit(fleet.files(2, policy()), "Agent 2")
        until(fleet.is_begun, log.read_text)
    fleet.halt()
    with running(fleet.directory, fleet.plane, *options) as (_, log):
        until(lambda: not fleet.targets(), log.read_text)
    revert = fleet.upstream.git("rev-parse", "main")

    # A process that knows nothing but the cluster and Git, and further commits.
    fleet.upstream.git("reset", "--quiet", "--hard")
    with running(fleet.directory, fleet.plane, *options) as (_, log):
        later = fleet.upstream.commit({"README.md": "later\n"}, "Later")
        until(lambda: f"commit {later[:12]}" in log.read_text(), log.read_text)
        (halted,) = halts(fleet, *clone)
        assert halted["commit"] == bad
        assert halted["changeCause"] == "Agent 2"
        assert halted["author"] == "Ada <ada@example.com>"
        assert (halted["stage"], halted["reason"]) == ("canary", "CrashLoopBackOff on revert-node")
        assert halted["nodes"] == [
            {
                "name": "revert-node",
                "reason": "CrashLoopBackOff",
                "message": "agent exited with 1",
            }
        ]
        assert halted["replacedBy"]["commit"] == revert
        assert halted["replacedBy"]["changeCause"] == 'Revert "Agent 2"'
        assert halted["replacedBy"]["author"].startswith("gitops-ds <")

        story = history(fleet, *clone).partition("HALTED")[2].splitlines()[1]
        places = [story.index(words) for words in (bad[:12], "canary", "Crash", revert[:12])]
        assert places == sorted(places)
        assert "gitops-ds <" in story

        address = f"http://127.0.0.1:{port}/agents/{fleet.space}/agent"
        until(lambda: "by gitops-ds" in table(address), lambda: table(address))
        for words in (
            *(bad[:12], "Agent 2", "stage canary: CrashLoopBackOff on revert-node"),
            *("revert-node: CrashLoopBackOff: agent exited with 1", revert[:12]),
        ):
            until(lambda words=words: words in table(address), lambda: table(address))  # type: ignore[misc]


def table(address: str) -> str:
    """The halted rollouts on the page of the agent."""
    return read(address).partition('id="halts"')[2].partition("<!--/live-->")[0]
