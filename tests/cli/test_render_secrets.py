"""`render` prints secret values on request only."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.cluster import program
from tests.plan.world import config_map, daemonset


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_secrets_are_printed_on_request_only(tmp_path: Path, output: str) -> None:
    at = program.desk(tmp_path, tmp_path / "kubeconfig")
    value = base64.b64encode(b"hunter2").decode()
    secret = {**config_map("keys"), "kind": "Secret", "data": {"p": value}}
    agent = daemonset()
    container = agent["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "PLAIN", "value": "word"}]
    at.commit("An agent and a Secret", agent=agent, keys=secret)
    hidden = at.run("render", "-o", output)
    shown = at.run("render", "-o", output, "--show-secrets")
    assert (hidden.code, shown.code) == (0, 0)
    assert value not in hidden.out
    assert value in shown.out
    assert "word" in hidden.out
