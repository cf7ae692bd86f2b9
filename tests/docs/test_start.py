"""The Start page: what of it needs kind, which the tests do not have, is consistent."""

from __future__ import annotations

import re

from gitops_ds.yaml import parser
from tests.docs import pages
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/start.md"
BLOCKS = [block for section in pages.sections(PAGE) for block in section.blocks]


def test_the_cluster_has_the_nodes_that_the_outputs_name() -> None:
    (block,) = (block for block in BLOCKS if block.file == "kind.yaml")
    parsed = parser.read(block.file, block.text.encode())
    assert not parsed.findings
    cluster = parsed.documents[0].value
    assert (cluster["kind"], cluster["apiVersion"]) == ("Cluster", "kind.x-k8s.io/v1alpha4")
    roles = [node["role"] for node in cluster["nodes"]]
    assert roles == ["control-plane", "worker", "worker", "worker"]
    text = PAGE.read_text("utf-8")
    assert set(re.findall(r"(\d+) of (\d+) nodes available", text)) == {("4", "4")}
    assert f"gains {len(roles)} nodes" in text


def test_the_commands_of_kind_are_of_one_cluster_and_have_known_options() -> None:
    text = PAGE.read_text("utf-8")
    commands = re.findall(r"(?:^|`)(kind (?:create|delete) cluster[^`\n]*)", text, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        words = dict(re.findall(r" --([a-z]+) (\S+)", command))
        assert words["name"] == "agents"
        assert set(words) <= {"name", "config", "wait"}
    assert "--config kind.yaml" in commands[0]
