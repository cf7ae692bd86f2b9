"""The key requiredForWork: the nearest declaration wins, with its place."""

from __future__ import annotations

import pytest

from gitops_ds.core import names
from gitops_ds.core.objects import Key
from gitops_ds.source import render
from tests.render import snapshots

ANNOTATION = ("metadata", "annotations", names.REQUIRED_FOR_WORK)
FILES = {
    "agent": "agents/a/agent.yaml",
    "environment": "environments/production.yaml",
    "cluster": "clusters/one.yaml",
    "variant": "agents/a/variants.yaml",
}


def rendered(**declared: bool | None) -> tuple[str | None, str]:
    """The annotation of the DaemonSet, and the file of its value."""
    key = {
        name: "" if value is None else f"requiredForWork: {str(value).lower()}"
        for name, value in {**dict.fromkeys(FILES), **declared}.items()
    }
    texts = {
        "gitops-ds.yaml": "version: v1\nname: fleet\n",
        "clusters/one.yaml": f"environment: production\nagents: {{a: {{{key['cluster']}}}}}\n",
        "environments/production.yaml": f"agents: {{a: {{{key['environment']}}}}}\n",
        "agents/a/agent.yaml": f"{{{key['agent']}}}\n",
        "agents/a/variants.yaml": f"variants: [{{name: default, {key['variant']}}}]\n",
        "agents/a/daemonset.yaml": "apiVersion: apps/v1\nkind: DaemonSet\n"
        "metadata: {name: a, namespace: agents}\nspec: {template: {spec: {}}}\n",
    }
    bundle = render.render(snapshots.of_texts(texts), cluster="one")
    assert [one.message for one in bundle.findings] == []
    manifest = bundle.manifests[Key("apps", "DaemonSet", "agents", "a")]
    assert names.REQUIRED_FOR_WORK not in str(manifest.body["spec"])
    annotations = manifest.body["metadata"].get("annotations") or {}
    pointers = manifest.origin.set_by.get(ANNOTATION, ())
    return annotations.get(names.REQUIRED_FOR_WORK), pointers[0].file if pointers else ""


def test_an_agent_is_not_required_by_default() -> None:
    assert rendered() == (None, "")


@pytest.mark.parametrize("place", FILES)
def test_each_file_can_require_the_agent_and_is_the_place_of_its_value(place: str) -> None:
    assert rendered(**{place: True}) == ("true", FILES[place])


@pytest.mark.parametrize(
    ("far", "near"),
    [
        ("agent", "environment"),
        ("agent", "cluster"),
        ("environment", "cluster"),
        ("cluster", "variant"),
    ],
)
def test_the_nearest_declaration_wins(far: str, near: str) -> None:
    assert rendered(**{far: True, near: False}) == (None, "")
    assert rendered(**{far: False, near: True}) == ("true", FILES[near])
