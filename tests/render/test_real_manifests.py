"""Manifests of known projects, read next to the project where they are present: they are
rendered unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from gitops_ds.core.objects import key_of
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.source import render
from gitops_ds.yaml import parser

FOLDER = Path(__file__).parents[2].parent / "shared/real-manifests"
FILES = sorted(p.name for p in FOLDER.glob("*.*") if p.suffix in (".yaml", ".yml", ".json"))
NAMESPACE = "node-agents"
# Three that no API server takes either (a syntax error twice, a key given twice), and a fragment
# that an operator completes.
BROKEN = {
    "kubernetes--konnectivity-agent-ds.yaml": "DS001",
    "smarter-device-manager--xavier-k3s.yaml": "DS001",
    "tectonic--kube-flannel-vxlan.yaml": "DS002",
    "openshift-dns--daemonset.yaml": "DS005",
}


def objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and value.get("kind") == "List":
        for item in value["items"]:
            yield from objects(item)
    elif value is not None:
        yield value


@pytest.mark.parametrize("name", FILES)
def test_every_object_of_a_real_manifest_is_rendered_unchanged(name: str) -> None:
    data = (FOLDER / name).read_bytes()
    bundle = render.render(SourceTree(None, {PurePosixPath(name): data}), namespace=NAMESPACE)
    refused = [finding.rule for finding in bundle.findings if finding.refused]
    assert refused == ([BROKEN[name]] if name in BROKEN else [])
    if refused:
        return
    written = {
        key_of(body): body
        for document in parser.read(name, data).documents
        for body in objects(document.value)
    }
    rendered = {}
    for manifest in bundle.manifests.values():
        body = dict(manifest.body)
        if key_of(body) not in written:
            assert body["metadata"]["namespace"] == NAMESPACE
            body["metadata"] = {
                key: value for key, value in body["metadata"].items() if key != "namespace"
            }
        rendered[key_of(body)] = body
    assert rendered == written


@pytest.mark.parametrize("name", FILES)
def test_a_bundle_as_yaml_reads_back_as_the_bundle(name: str) -> None:
    bundle = render.render(
        SourceTree(None, {PurePosixPath(name): (FOLDER / name).read_bytes()}), namespace=NAMESPACE
    )
    parsed = parser.read("out.yaml", render.as_yaml(bundle, secrets=True).encode())
    assert parsed.findings == ()
    by_key = {key_of(document.value): document.value for document in parsed.documents}
    assert by_key == {
        key_of(manifest.body): manifest.body for manifest in bundle.manifests.values()
    }
