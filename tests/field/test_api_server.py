"""Each report about manifests on a real API server: our verdict is its verdict, and what was
applied is in sync.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core.objects import NAMESPACE, group_of
from gitops_ds.kube.apimachinery import builtin_resources
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.yaml import parser
from tests.cluster.conftest import Counting
from tests.controlplane import ControlPlane
from tests.field.reports import COMMITS, VERDICTS, Commits, Verdict
from tests.plan import world
from tests.truth import verdicts

TAKING: Any = ApplyOptions(adopt=True, patience=0)
SAME = ("uid", "generation")
_numbers = itertools.count()


def body_of(manifest: str) -> dict[str, Any]:
    (document,) = parser.read("manifest.yaml", manifest.encode()).documents
    body: dict[str, Any] = document.value
    return body


def refused_by_server(server: ControlPlane, row: Verdict, directory: Path) -> bool:
    if row.by_kubectl:
        file = directory / "manifest.yaml"
        file.write_text(row.manifest)
        command = ("create", "--dry-run=server", "--validate=strict", "-f", str(file))
        try:
            server.kubectl(*command)
        except (subprocess.CalledProcessError, AssertionError):
            return True
        return False
    body = body_of(row.manifest)
    case = verdicts.Case(0, (), body, row.manifest.encode(), verdicts.path_of(body, body))
    (judged,) = asyncio.run(verdicts.judged(server, [case]))
    # A Namespace that the other test has made is refused as the last: its manifest is valid.
    return judged.decided and bool(judged.create or judged.apply)


@pytest.mark.parametrize("row", VERDICTS, ids=[row.report for row in VERDICTS])
def test_the_check_refuses_what_the_report_found(row: Verdict) -> None:
    rules = {finding.rule for finding in verdicts.ours(row.manifest.encode())}
    assert row.refused in rules if row.refused else not rules


@pytest.mark.controlplane
def test_the_api_server_has_the_same_verdicts(api_server: ControlPlane, tmp_path: Path) -> None:
    wrong = [
        row.report
        for row in VERDICTS
        if refused_by_server(api_server, row, tmp_path) != bool(row.refused)
    ]
    assert wrong == []


async def _differences(server: ControlPlane, row: Commits) -> Iterator[str]:
    """Every difference from the row."""
    result: list[str] = []
    namespace = f"field-{next(_numbers)}"
    async with Counting(server) as cluster:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await cluster.create(NAMESPACE, space)
        deployer = world.World(cluster, owner=namespace, namespace=namespace)
        body = body_of(row.commits[0])
        resource = builtin_resources.RESOURCES[group_of(body), body["kind"]]
        inside = namespace if resource.namespaced else ""
        name = body["metadata"]["name"]
        try:
            for number, commit in enumerate(row.commits):
                is_last = number == len(row.commits) - 1
                if is_last and row.by_others:
                    await cluster.patch(resource, inside, name, json.loads(row.by_others))
                if not number and row.by_kubectl:
                    server.kubectl("-n", namespace, "create", "-f", "-", stdin=commit)
                    continue
                done = await deployer.apply({"a.yaml": commit}, str(number), TAKING)
                if bool(done.refusals) != (row.refused and is_last):
                    result.append(f"commit {number}: {done.refusals or 'not refused'}")
                if not done.refusals and bool(done.written) != (row.writes or not is_last):
                    result.append(f"commit {number} wrote {done.written}")
                again = await deployer.apply({"a.yaml": commit}, str(number), TAKING)
                if again.written:
                    result.append(f"commit {number} is written again: {again.written}")
            value: Any = await cluster.get(resource, inside, name)
            # A file of another name: fluxcd/kustomize-controller#338, fluxcd/flux2#3316
            if not row.refused:
                await deployer.apply({"b.yaml": row.commits[-1]}, str(number), TAKING)
            moved = await cluster.get(resource, inside, name)
            if any(moved["metadata"].get(k) != value["metadata"].get(k) for k in SAME):
                result.append("changed by the name of its file")
            for step in row.path:
                value = value.get(step) if isinstance(value, dict) else value[step]
            if row.path and value != row.value:
                result.append(f"{row.path} is {value}")
        finally:
            if not resource.namespaced:
                await cluster.delete(resource, "", name)
    return iter(result)


@pytest.mark.controlplane
def test_an_applied_object_is_in_sync_with_git_after_one_reconciliation(
    api_server: ControlPlane,
) -> None:
    taken = tuple(Commits(row.report, (row.manifest,)) for row in VERDICTS if not row.refused)
    wrong = {
        row.report: differences
        for row in taken + COMMITS
        if (differences := list(asyncio.run(_differences(api_server, row))))
    }
    assert wrong == {}
