"""What we refuse is what a real API server refuses, and nothing else: every document of the cases,
as a strict dry run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

import pytest

from gitops_ds.checks.engine import rule_table
from gitops_ds.checks.schema import manifests
from gitops_ds.core.objects import Resource, group_of
from gitops_ds.kube.apimachinery import builtin_resources, kubernetes_versions
from gitops_ds.yaml import parser
from tests.controlplane import ControlPlane

CASES = Path(__file__).parent / "cases"
REAL = Path(__file__).resolve().parents[3] / "shared" / "real-manifests"

# About our annotations, of which an API server knows nothing.
OF_OUR_FORMAT = frozenset(("DS323",))
# Refused for what this one cluster has or lacks: no file shows it.
OF_THIS_CLUSTER = ("failed to allocate IP", "label on the containing namespace")


def refused_by_us(body: dict[str, Any]) -> bool:
    shape = [
        complaint
        for complaint in manifests.check(body, (kubernetes_versions.NEWEST,))
        if complaint.refused
    ]
    rules = [hit.rule for hit in rule_table.check(body) if hit.rule.refused]
    return bool(shape) or any(rule.id not in OF_OUR_FORMAT for rule in rules)


def refused_by(server: ControlPlane, body: dict[str, Any], resource: Resource | None) -> str:
    """The server's error for a strict dry run of a server-side apply; empty if it accepts the
    object.
    """
    if resource is None:
        return "no such kind"
    version, metadata = str(body["apiVersion"]), body["metadata"]
    namespace = f"/namespaces/{metadata['namespace']}" if resource.namespaced else ""
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    path = f"{root}{namespace}/{resource.plural}/{quote(metadata['name'], safe='')}"
    try:
        server.request(
            "PATCH",
            f"{path}?fieldManager=test&dryRun=All&fieldValidation=Strict",
            body,
            "application/apply-patch+yaml",
        )
    except HTTPError as error:
        with error:
            return error.read().decode() or str(error)
    return ""


def disagreements(server: ControlPlane, files: list[Path]) -> list[str]:
    result = []
    for file in files:
        for one in parser.read(file.name, file.read_bytes()).documents:
            for body in one.value["items"] if one.value.get("kind") == "List" else [one.value]:
                resource = builtin_resources.RESOURCES.get((group_of(body), str(body.get("kind"))))
                if not body.get("metadata", {}).get("name") or (
                    resource is None and "." in group_of(body)
                ):
                    continue
                # A dry run requires the namespace, which is not tested here.
                if resource and resource.namespaced:
                    body["metadata"]["namespace"] = "default"
                answer = refused_by(server, body, resource)
                if bool(answer) != refused_by_us(body) and not any(
                    reason in answer for reason in OF_THIS_CLUSTER
                ):
                    result.append(
                        f"{file.parent.name}/{file.name} document {one.index}: "
                        f"{answer or 'the API server takes it'}"
                    )
    return result


@pytest.mark.controlplane
def test_the_api_server_refuses_what_we_refuse(api_server: ControlPlane) -> None:
    assert disagreements(api_server, sorted(CASES.glob("*/input.yaml"))) == []


@pytest.mark.controlplane
def test_the_api_server_agrees_about_vendors_manifests(api_server: ControlPlane) -> None:
    assert (
        disagreements(
            api_server, sorted(path for path in REAL.glob("*") if path.suffix in (".yaml", ".json"))
        )
        == []
    )
