"""Every value is explained by file, line and column, the effective one first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gitops_ds.core.errors import UsageError
from gitops_ds.core.objects import Path
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.source.render import field_path, render
from gitops_ds.source.render.explain import explain
from gitops_ds.yaml import parser
from gitops_ds.yaml.provenance import lookup
from tests.render import snapshots
from tests.render.test_examples import CLUSTERS, snapshot


def explanation_of(
    path: str, cluster: str = "eu-1", labels: dict[str, str] | None = None
) -> tuple[Any, list[str]]:
    explanation = explain(snapshot(), "fluent-bit", path, cluster=cluster, node_labels=labels)
    return explanation.value, [str(setting.place) for setting in explanation.set_by]


def test_a_parameter_names_its_layers_the_effective_one_first() -> None:
    assert explanation_of("metricsPort") == (
        2021,
        ["environments/production.yaml:7:20", "agents/fluent-bit/params.schema.json:9:86"],
    )


def test_a_way_into_a_parameter_is_explained() -> None:
    value, places = explanation_of("resources.limits.memory")
    assert value == "512Mi"
    assert places == [
        "agents/fluent-bit/values/eu-1.yaml:3:20",
        "agents/fluent-bit/params.schema.json:13:86",
    ]


def test_the_labels_of_a_node_choose_the_variant() -> None:
    value, places = explanation_of(
        "resources.limits.memory",
        labels={"kubernetes.io/os": "linux", "nvidia.com/gpu.present": "true"},
    )
    assert value == "1Gi"
    assert places[0] == "agents/fluent-bit/variants.yaml:11:26"
    assert places[1] == "agents/fluent-bit/values/eu-1.yaml:3:20"


def test_a_manifest_path_names_value_and_template() -> None:
    value, places = explanation_of("spec.template.spec.containers[fluent-bit].image")
    assert value == "cr.fluentbit.io/fluent/fluent-bit:4.0.11"
    assert places == [
        "agents/fluent-bit/values/production.yaml:1:10",
        "agents/fluent-bit/daemonset.yaml:30:18",
    ]


def test_a_patch_names_the_patch() -> None:
    assert explanation_of("spec.updateStrategy.rollingUpdate.maxUnavailable") == (
        "5%",
        ["agents/fluent-bit/patches/production.yaml:3:81"],
    )


def test_a_generated_affinity_names_the_variant() -> None:
    _, places = explanation_of(
        "spec.template.spec.affinity",
        labels={"kubernetes.io/os": "linux", "nvidia.com/gpu.present": "true"},
    )
    assert set(places) == {"agents/fluent-bit/variants.yaml:6:5"}


def test_a_content_named_reference_names_the_file() -> None:
    value, places = explanation_of("spec.template.spec.volumes[config].configMap.name")
    assert value.startswith("fluent-bit-")
    assert places[0] == "agents/fluent-bit/config/fluent-bit.yaml:1:1"


def test_a_default_names_the_repository_settings() -> None:
    assert explanation_of("metadata.labels.team") == ("platform", ["gitops-ds.yaml:6:11"])


def test_a_plain_daemonset_is_an_agent_by_its_name() -> None:
    explanation = explain(
        snapshot(), "inotify-limits", "spec.template.spec.priorityClassName", cluster="eu-1"
    )
    assert (explanation.value, [str(s.place) for s in explanation.set_by]) == (
        "node-agent",
        ["legacy/inotify-limits.yaml:24:26"],
    )


@pytest.mark.parametrize(
    ("agent", "path", "cluster", "labels", "words"),
    [
        ("fluentbit", "version", "eu-1", None, "did you mean fluent-bit"),
        ("fluent-bit", "spec.nothing", "eu-1", None, "neither a parameter nor a field"),
        ("fluent-bit", "resources.limits.cpu", "eu-1", None, "nothing at limits.cpu"),
        ("fluent-bit", "a[", "eu-1", None, "is not a valid path"),
        ("fluent-bit", "version", "eu1", None, "did you mean eu-1"),
        ("fluent-bit", "version", "", None, "choose one with --cluster"),
        (
            "fluent-bit",
            "version",
            "eu-1",
            {"pool": "edge"},
            "no DaemonSet for a node with these labels",
        ),
    ],
)
def test_an_impossible_explanation_has_a_reason(
    agent: str, path: str, cluster: str, labels: dict[str, str] | None, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        explain(snapshot(), agent, path, cluster=cluster, node_labels=labels)


def scalars(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from scalars(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from scalars(item, (*path, index))
    else:
        yield path, value


def written(tree: SourceTree, file: str, document: int, path: Path) -> Any:
    for name, data in tree.files.items():
        if str(name) == file:
            value = next(d.value for d in parser.read(file, data).documents if d.index == document)
            way = field_path.resolve(value, path)
            return None if way is None else field_path.get(value, way)
    return None


@pytest.mark.sampled
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_scalar_is_located_at_itself_or_at_its_source(cluster: str) -> None:
    tree = snapshot()
    for manifest in render(tree, cluster=cluster).manifests.values():
        if manifest.origin.base.file.endswith("kustomization.yaml"):
            continue
        for path, value in scalars(manifest.body):
            winner = lookup.pointers(manifest.origin, path)[0]
            origin = written(tree, winner.file, winner.document, winner.path)
            generated = (
                winner.file.endswith(("variants.yaml", "gitops-ds.yaml"))
                or "/config/" in winner.file
                or winner.path == ()
            )
            part = isinstance(origin, str | int) and str(origin) in str(value)
            assert generated or origin == value or part or "${" in str(origin), (
                manifest.key,
                path,
                winner,
            )


def test_an_entry_that_moved_still_points_at_its_own_line() -> None:
    tree = snapshots.of_texts(
        {
            "clusters/one.yaml": "environment: dev\n",
            "agents/a/daemonset.yaml": (
                "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a, namespace: agents}\n"
                "spec:\n  template:\n    spec:\n      containers:\n        - name: first\n        "
                "- name: second\n"
            ),
            "agents/a/patches/one.yaml": "- {op: remove, path: /spec/template/spec/containers/0}\n",
        }
    )
    explanation = explain(tree, "a", "spec.template.spec.containers[0].name")
    assert (explanation.value, str(explanation.set_by[0].place)) == (
        "second",
        "agents/a/daemonset.yaml:9:17",
    )
