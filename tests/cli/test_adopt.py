"""What `adopt` writes is what a person would have written, and is stored as the very object that it
came from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitops_ds.cli.adopt import adopted_repository
from gitops_ds.core import names
from gitops_ds.kube.apimachinery import defaults
from gitops_ds.yaml import parser
from tests.plan.world import daemonset

REAL = sorted((Path(__file__).parents[2] / "examples-repo").rglob("*.yaml"))


def live(body: dict[str, Any]) -> dict[str, Any]:
    """As an API server shows it."""
    stored = defaults.defaulted(body)
    metadata = {
        **stored["metadata"],
        "uid": "u",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {
            **(stored["metadata"].get("annotations") or {}),
            names.TEMPLATE_GENERATION: "3",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
    }
    return {**stored, "metadata": metadata, "status": {"numberReady": 3}}


def test_fields_of_the_server_are_omitted_and_fields_of_the_user_remain() -> None:
    written = daemonset("agent", "registry.example.com/agent:1", "logging")
    written["metadata"]["annotations"] = {"example.com/team": "platform"}
    written["spec"]["template"]["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"
    }
    assert adopted_repository.clean(live(written)) == written


def test_marks_of_other_tools_are_left_out_except_in_the_template() -> None:
    marks = {
        "app.kubernetes.io/managed-by": "Helm",
        "helm.sh/chart": "agent-1.0.0",
        "kustomize.toolkit.fluxcd.io/name": "agents",
    }
    kept = {"app.kubernetes.io/instance": "agents", "app.kubernetes.io/name": "agent"}
    body = daemonset("agent", "registry.example.com/agent:1", "logging")
    body["metadata"]["labels"] = {**marks, **kept}
    body["metadata"]["annotations"] = {
        "argocd.argoproj.io/tracking-id": "agents:apps/DaemonSet:logging/agent",
        "meta.helm.sh/release-name": "agent",
    }
    body["spec"]["template"]["metadata"]["labels"] |= marks
    written = adopted_repository.clean(live(body))
    assert written["metadata"]["labels"] == kept
    assert "annotations" not in written["metadata"]
    assert marks.items() <= written["spec"]["template"]["metadata"]["labels"].items()
    body["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "platform"}
    assert adopted_repository.clean(live(body))["metadata"]["labels"] == body["metadata"]["labels"]


def found() -> list[Any]:
    every = []
    for path in REAL:
        for document in parser.read(path.name, path.read_bytes()).documents:
            body = document.value
            if (
                isinstance(body, dict)
                and body.get("kind") == "DaemonSet"
                and "${" not in path.read_text()
            ):
                every.append(pytest.param(body, id=path.parent.name + "/" + path.name))
    return every


@pytest.mark.parametrize("body", found())
def test_the_manifest_is_stored_as_the_object_that_it_came_from(body: dict[str, Any]) -> None:
    seen = live(body)
    cleaned = adopted_repository.clean(seen)
    assert defaults.defaulted(cleaned)["spec"] == seen["spec"]
    assert len(str(cleaned)) < len(str(seen))
