"""Texts of a cluster and of Git reach a terminal without control characters and bidirectional
overrides, in each command.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from gitops_ds.cli import plan as plan_command
from gitops_ds.core import names
from gitops_ds.core.change import Change, FieldChange, Operation, Plan
from gitops_ds.core.objects import DAEMONSET, CommitId, Key
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.deploy import source_status_store
from gitops_ds.deploy.plan import printers
from tests.cli import api_server
from tests.cli.test_list_options import daemonset, event, revision
from tests.cluster import program
from tests.cluster.program import Desk
from tests.cluster.test_bad_input import kubeconfig

# `click.echo` removes an ANSI sequence where no terminal is, and a test would not see it.
BAD = "text\x9b2J\u202e\r\x07"
KEY = Key(DAEMONSET.group, DAEMONSET.kind, "logging", "alpha")


def hostile_daemonset() -> dict[str, Any]:
    body = daemonset("alpha", "logging", 0, app="alpha")
    annotations = (names.COMMIT, names.REQUIRED_FOR_WORK, "kubernetes.io/change-cause")
    body["metadata"]["annotations"] = dict.fromkeys(annotations, BAD)
    return body


def hostile_pod() -> dict[str, Any]:
    state = {"waiting": {"reason": f"CrashLoopBackOff{BAD}", "message": BAD}}
    last = {"terminated": {"exitCode": 1, "reason": BAD, "message": BAD}}
    container = {"name": BAD, "ready": False, "restartCount": 7, "state": state, "lastState": last}
    return {
        "metadata": {
            "name": "alpha-1",
            "namespace": "logging",
            "uid": "pod",
            "labels": {"app": "alpha", "controller-revision-hash": BAD},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "DaemonSet",
                    "name": "alpha",
                    "uid": "uid-logging-alpha",
                    "controller": True,
                }
            ],
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "agent", "image": BAD}]},
        "status": {
            "phase": "Failed",
            "reason": BAD,
            "message": BAD,
            "containerStatuses": [container],
        },
    }


def hostile_objects() -> Mapping[str, Any]:
    condition = {"type": "Ready", "status": "True", "reason": BAD, "message": BAD}
    node = {
        "metadata": {"name": "node-1", "uid": "node"},
        "spec": {"taints": [{"key": BAD, "value": BAD, "effect": "NoSchedule"}]},
        "status": {"conditions": [condition]},
    }
    failed = {**event("one", "FailedCreate", "Warning", "alpha"), "message": BAD}
    first = revision(1, BAD)
    first["metadata"]["annotations"] = {"kubernetes.io/change-cause": BAD, names.COMMIT: BAD}
    status = SourceStatus(
        "fleet", BAD, branch=BAD, condition=Condition.FAILED, message=BAD, written=time.time()
    )
    return {
        "/apis/apps/v1/daemonsets": [hostile_daemonset()],
        "/apis/apps/v1/controllerrevisions": [first, revision(2, f"b{BAD}")],
        "/api/v1/nodes": [node],
        "/api/v1/pods": [hostile_pod()],
        "/api/v1/events": [failed],
        "/api/v1/namespaces/logging/events": [failed],
        "/api/v1/namespaces/gitops-ds/configmaps": [source_status_store.body("gitops-ds", status)],
    }


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Desk]:
    with api_server.serving(hostile_objects()) as url:
        yield program.desk(tmp_path, kubeconfig(tmp_path, url))


@pytest.mark.parametrize(
    "words",
    [
        "get",
        "get -o wide",
        "get -o yaml",
        "get nodes",
        "status alpha",
        "status alpha --nodes",
        "events",
        "events -o wide",
        "history alpha",
        "history alpha --revision 1",
        "history alpha --diff 1 2",
        "sources",
        "sources -o wide",
        "sources -o yaml",
        "trace node/node-1",
        "trace ds/alpha",
    ],
)
def test_no_command_prints_a_control_character_of_the_cluster(at: Desk, words: str) -> None:
    ended = at.run(*words.split())
    assert ended.code == 0, ended.err
    assert ended.out
    for line in (ended.out + ended.err).split("\n"):
        assert line.isprintable()


def test_a_plan_has_the_lines_of_its_changes_only() -> None:
    path = ("spec", f"{BAD}\n::error::\n  - delete everything")
    change = Change(Operation.UPDATE, KEY, None, (FieldChange(path, BAD, f"a{BAD}"),))
    skipped = Skipped(SkipReason.REFUSED, f"{BAD}\n::add-mask::a", KEY)
    plan = Plan(CommitId("a" * 40), "main", (change,), (skipped,), "hash")
    lines = click.unstyle(plan_command.coloured(printers.as_text(plan))).split("\n")
    assert all(line.isprintable() and not line.lstrip().startswith("::") for line in lines)
    assert not any(line.startswith("  -") for line in lines)


def test_explain_prints_values_and_keys_of_git_without_control_characters(tmp_path: Path) -> None:
    desk = program.desk(tmp_path, tmp_path / "none")
    body = daemonset("alpha", "logging", 0)
    body["spec"]["template"]["metadata"]["annotations"] = {BAD: BAD}
    (desk.tree / "agents/alpha").mkdir(parents=True)
    (desk.tree / "agents/alpha/alpha.yaml").write_text(json.dumps(body))
    for path in ("spec.template", "spec.template.metadata.annotations"):
        ended = desk.run("explain", "alpha", path, "-C", str(desk.tree))
        assert ended.code == 0, ended.err
        assert all(line.isprintable() for line in ended.out.split("\n"))
