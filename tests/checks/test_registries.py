"""DS413: the registries that a repository allows."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from gitops_ds.model.sources.source_tree import SourceTree
from gitops_ds.pipeline import prepare
from tests.agent_manifest import agent

ALLOWED = "{registries: [registry.example.com, ghcr.io/acme/, localhost:5000]}"


def violations(switch: str, image: str) -> list[tuple[str, str]]:
    """The rules that have something against the settings, and what DS413 has against the image."""
    files = {
        "gitops-ds.yaml": f"version: v1\nmanifests: [agent.yaml]\nrules: {{DS413: {switch}}}\n",
        "agent.yaml": agent(image=image),
    }
    snapshot = SourceTree(
        None, {PurePosixPath(name): text.encode() for name, text in files.items()}
    )
    findings = prepare.prepare(snapshot).findings
    return [
        (one.rule, one.message)
        for one in findings
        if one.rule in ("DS413", "DS004", "DS003", "DS005", "DS006")
    ]


@pytest.mark.parametrize(
    ("image", "fine"),
    [
        ("registry.example.com/agent:1", True),
        ("registry.example.com/team/agent:1", True),
        ("ghcr.io/acme/agent:1", True),
        ("localhost:5000/agent@sha256:" + "0" * 64, True),
        ("ghcr.io/acme-corp/agent:1", False),
        ("ghcr.io/other/agent:1", False),
        ("registry.example.com.evil.org/agent:1", False),
        ("agent:1", False),
    ],
)
def test_images_are_from_the_allowed_registries(image: str, fine: bool) -> None:
    assert [rule for rule, _ in violations(ALLOWED, image)] == ([] if fine else ["DS413"])


def test_the_message_lists_the_allowed_registries() -> None:
    ((_, message),) = violations(ALLOWED, "quay.io/agent:1")
    assert message.endswith(
        "not from a registry that gitops-ds.yaml allows: registry.example.com, ghcr.io/acme, "
        "localhost:5000"
    )


def test_without_registries_every_image_is_allowed_and_a_disabled_rule_requires_none() -> None:
    assert violations("true", "quay.io/agent:1") == []
    assert [rule for rule, _ in violations("true", "agent:1")] == ["DS413"]
    assert violations("false", "agent:1") == []


@pytest.mark.parametrize(
    "switch", ["{}", "{registries: []}", "{registry: [a]}", "yes please", "{registries: a}"]
)
def test_settings_that_mean_nothing_are_refused(switch: str) -> None:
    assert {rule for rule, _ in violations(switch, "registry.example.com/agent:1")} - {"DS413"}
