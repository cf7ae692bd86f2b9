"""The installed service on a real API server: templates that people keep in ConfigMaps and Secrets
with kubectl.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests import controlplane
from tests.cluster import program
from tests.plan.world import daemonset
from tests.service.test_service import running, settings, until

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.system,
]


def put(
    plane: controlplane.ControlPlane,
    directory: Path,
    space: str,
    name: str,
    template: object,
    kind: str = "configmap",
) -> None:
    """As people do it: kubectl makes the object of a file, and labels it."""
    file = directory / "agent.yaml"
    file.write_text(template if isinstance(template, str) else json.dumps(template, indent=2))
    words = ("configmap",) if kind == "configmap" else ("secret", "generic")
    made = plane.kubectl(
        "-n", space, "create", *words, name, f"--from-file={file}", "--dry-run=client", "-o", "json"
    )
    body = json.loads(made)
    body["metadata"]["labels"] = {"gitops-ds.io/template": "true"}
    file.write_text(json.dumps(body))
    plane.kubectl("apply", "-f", str(file))


def image(plane: controlplane.ControlPlane, space: str, name: str) -> str:
    body = plane.read(space, "daemonsets", name)
    return str(body["spec"]["template"]["spec"]["containers"][0]["image"]) if body else ""


def ask(plane: controlplane.ControlPlane, *words: str) -> program.Ended:
    where = ("--kubeconfig", str(plane.kubeconfig), "--state-namespace", "service-test")
    return program.in_this_process((*words, *where), Path.cwd(), os.environ)


def history(plane: controlplane.ControlPlane, space: str) -> list[dict[str, str]]:
    """The revisions of the DaemonSet plain."""
    items: list[dict[str, str]] = json.loads(
        ask(plane, "history", "ds/plain", "-n", space, "-o", "json").out
    )["items"]
    return items


def history_names_the_config_map(plane: controlplane.ControlPlane, space: str) -> None:
    """The ConfigMap and its version take the place of a commit, and a rollback is refused."""
    version = plane.kubectl(
        "-n", space, "get", "configmap", "plain", "-o", "jsonpath={.metadata.resourceVersion}"
    )
    revisions = history(plane, space)
    assert [item["commit"].partition("@")[0] for item in revisions] == [
        f"configmap/{space}/plain"
    ] * len(revisions)
    assert revisions[-1]["commit"] == f"configmap/{space}/plain@{version}"
    assert revisions[-1]["changeCause"] == f"ConfigMap {space}/plain, key agent.yaml"
    assert (
        f"configmap/{space}/plain@{version}" in ask(plane, "history", "ds/plain", "-n", space).out
    )
    refused = ask(plane, "rollback", "ds/plain", "-n", space, "--to-revision", "1")
    assert refused.code != 0
    assert f"comes from configmap {space}/plain, not from Git" in refused.err


def test_a_configmap_and_a_secret_are_rolled_out_when_created_changed_and_deleted(
    tmp_path: Path, control_plane: controlplane.ControlPlane, space: str
) -> None:
    def runs(name: str, expected: str) -> None:
        until(lambda: image(control_plane, space, name) == expected, log.read_text)

    def put_agent(name: str, image: str, kind: str = "configmap") -> None:
        put(control_plane, tmp_path, space, name, daemonset(name, image, space), kind)

    options = settings(
        tmp_path,
        templates={"namespaces": [space]},
        cluster={"name": space},
        apply={"prune": True, "guards": {"maxNodesLost": "100%", "maxDeletes": "100%"}},
    )
    with running(tmp_path, control_plane, *options) as (_, log):
        put_agent("plain", "example.com/plain:1")
        put_agent("hidden", "example.com/hush-hush:1", "secret")
        runs("plain", "example.com/plain:1")
        runs("hidden", "example.com/hush-hush:1")
        put_agent("plain", "example.com/plain:2")
        put_agent("hidden", "example.com/hush-hush:2", "secret")
        runs("plain", "example.com/plain:2")
        runs("hidden", "example.com/hush-hush:2")

        until(lambda: len(history(control_plane, space)) == 2, log.read_text)
        history_names_the_config_map(control_plane, space)
        put_agent("other", "example.com/other:1")
        runs("other", "example.com/other:1")
        bad = json.dumps(daemonset("plain", "example.com/plain:3", space), indent=2).replace(
            '"containers"', '"containerz"'
        )
        put(control_plane, tmp_path, space, "plain", bad)
        until(
            lambda: (
                f"configmap/{space}/plain is not applied: configmap/{space}/plain/agent.yaml:"
                in log.read_text()
            ),
            log.read_text,
        )
        control_plane.kubectl("-n", space, "delete", "secret", "hidden")
        runs("hidden", "")
        assert image(control_plane, space, "plain") == "example.com/plain:2"
        events = control_plane.kubectl("get", "events", "-A", "-o", "yaml")
        assert "hush-hush" not in log.read_text() + events
        assert "Traceback" not in log.read_text()
