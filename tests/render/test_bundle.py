"""The contents of a bundle apart from its manifests."""

from __future__ import annotations

import pytest

from gitops_ds.core.objects import Key
from gitops_ds.source import render
from tests.render import snapshots

ACCOUNT = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n"
CUSTOM = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t}\n"
DEFINITION = (
    "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: "
    "things.example.com}\n"
    "spec: {group: example.com, scope: %s, names: {kind: Thing, plural: things}}\n"
)


@pytest.mark.parametrize(
    ("requested", "cluster", "repository", "expected"),
    [
        ("requested", "c", "r", "requested"),
        ("", "c", "r", "c"),
        ("", "", "r", "r"),
        ("requested", "", "", "requested"),
    ],
)
def test_the_nearest_namespace_wins(
    requested: str, cluster: str, repository: str, expected: str
) -> None:
    tree = snapshots.of_texts(
        {
            "gitops-ds.yaml": f"version: v1\nmanifests: [a.yaml]\ndefaults: {{namespace: "
            f"'{repository}'}}\n",
            "clusters/one.yaml": f"namespace: '{cluster}'\n",
            "a.yaml": ACCOUNT,
        }
    )
    bundle = render.render(tree, namespace=requested)
    assert list(bundle.manifests) == [Key("", "ServiceAccount", expected, "a")]
    assert bundle.cluster.namespace == expected


def test_the_scope_of_an_unknown_kind_is_left_to_the_cluster() -> None:
    (manifest,) = render.render(
        snapshots.of_texts({"t.yaml": CUSTOM}), namespace="n"
    ).manifests.values()
    assert manifest.scope_unknown
    assert manifest.key.namespace == ""


@pytest.mark.parametrize(("scope", "namespace"), [("Namespaced", "n"), ("Cluster", "")])
def test_a_definition_in_the_repository_decides_the_scope_of_a_kind(
    scope: str, namespace: str
) -> None:
    tree = snapshots.of_texts({"t.yaml": CUSTOM, "crd.yaml": DEFINITION % scope})
    bundle = render.render(tree, namespace="n")
    thing = bundle.manifests[Key("example.com", "Thing", namespace, "t")]
    assert not thing.scope_unknown


def test_the_namespace_of_a_cluster_wide_object_is_not_part_of_its_key() -> None:
    text = (
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r, "
        "namespace: x}\n"
    )
    assert list(render.render(snapshots.of_texts({"r.yaml": text})).manifests) == [
        Key("rbac.authorization.k8s.io", "ClusterRole", "", "r")
    ]


def test_manifests_are_only_those_that_the_settings_name() -> None:
    settings = (
        "version: v1\nname: mine\nprofile: strict\nmanifests: ['*.yaml', 'legacy/']\nignore: "
        "[legacy/old/]\n"
    )
    account = ACCOUNT.replace("{name: a}", "{name: %s, namespace: agents}")
    tree = snapshots.of_texts(
        {
            "gitops-ds.yaml": settings,
            "top.yaml": account % "top",
            "other/a.yaml": account % "other",
            "legacy/deep/a.yml": account % "deep",
            "legacy/old/a.yaml": account % "old",
            ".hidden/a.yaml": account % "hidden",
        }
    )
    bundle = render.render(tree)
    assert [key.name for key in bundle.manifests] == ["deep", "top"]
    assert (bundle.owner_hint, bundle.profile, bundle.findings) == ("mine", "strict", ())


def test_a_secret_is_printed_only_on_request() -> None:
    tree = snapshots.of_texts(
        {
            "s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: "
            "agents}\nstringData: {p: hunter2}\n"
        }
    )
    bundle = render.render(tree)
    assert "hunter2" not in render.as_yaml(bundle)
    assert "hunter2" in render.as_yaml(bundle, secrets=True)
    assert "hunter2" not in "".join(finding.message for finding in bundle.findings)


def test_every_object_of_the_agent_has_its_dependencies() -> None:
    daemonset = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: %s, namespace: agents}\n"
    tree = snapshots.of_texts(
        {
            "agents/a/agent.yaml": "dependsOn: [b]\n",
            "agents/a/daemonset.yaml": daemonset % "a",
            "agents/a/account.yaml": ACCOUNT.replace("{name: a}", "{name: a, namespace: agents}"),
            "agents/b/agent.yaml": "{}\n",
            "agents/b/daemonset.yaml": daemonset % "b",
        }
    )
    assert {str(m.key): m.depends_on for m in render.render(tree).manifests.values()} == {
        "ServiceAccount agents/a": ("b",),
        "DaemonSet agents/a": ("b",),
        "DaemonSet agents/b": (),
    }
