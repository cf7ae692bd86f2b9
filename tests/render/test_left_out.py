"""Manifests that gitops-ds.yaml leaves out are never left out silently, and the advice works."""

from __future__ import annotations

import re

import pytest

from gitops_ds.core.finding import Severity
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.source import render
from tests.render import snapshots

OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME, namespace: default}\n"
AGENT = {"agents/agent/config.yaml": OBJECT.replace("NAME", "agent")}
SETTINGS = "version: v1\n"


def rendered(files: dict[str, str]) -> Bundle:
    return render.render(snapshots.of_texts(files))


def config(name: str) -> str:
    return OBJECT.replace("NAME", name)


@pytest.mark.parametrize(
    ("files", "severity"),
    [
        ({"a.yaml": config("a"), "b.yaml": config("b")}, Severity.ERROR),
        (
            {
                "a.json": '{"apiVersion": "v1", "kind": "ConfigMap", '
                '"metadata": {"name": "a", "namespace": "x"}}'
            },
            Severity.ERROR,
        ),
        ({f"apps/{number}/a.yaml": config(f"n{number}") for number in range(9)}, Severity.ERROR),
        ({"a.yaml": config("a"), **AGENT}, Severity.WARNING),
        (
            {
                "values.yaml": "replicas: 1\n",
                "kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\n"
                "kind: Kustomization\n",
            },
            None,
        ),
    ],
)
def test_files_with_objects_that_are_not_read_are_found_and_the_advice_includes_them(
    files: dict[str, str], severity: Severity | None
) -> None:
    bundle = rendered({"gitops-ds.yaml": SETTINGS, **files})
    found = [one for one in bundle.findings if "not read" in one.message]
    assert [one.severity for one in found] == ([severity] if severity else [])
    if not found:
        return
    assert found[0].refused == (severity is Severity.ERROR)
    assert all(name in found[0].message for name in list(files)[:1])
    advised = re.findall("`(manifests: [^`]*)`", found[0].message)
    assert len(advised) == 2
    included, left_out = (
        rendered({"gitops-ds.yaml": SETTINGS + line + "\n", **files}) for line in advised
    )
    assert not [one for one in included.findings if one.refused]
    assert len(included.manifests) == len(files)
    assert not [one for one in left_out.findings if one.refused]
