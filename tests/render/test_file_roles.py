"""No file of a repository is left out silently."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.checks.schema import repository_files
from gitops_ds.core.finding import Severity
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.source import render
from gitops_ds.source.render import bundle as bundles
from tests.render import snapshots

SETTINGS = {"gitops-ds.yaml": "version: v1\n"}


def config(name: str) -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\n"


FOLDERS = st.lists(
    st.sampled_from(["agents", "clusters", "environments", "a", "values", "patches", "config"]),
    max_size=4,
).map("/".join)
NAMES = (
    *("ds.yaml", "ds.yml", "ds.json", "ds.YAML", "ds.Json"),
    *("agent.yaml", "agent.yml", "agent.YAML", "variants.yaml", "variant.yaml"),
)
PATHS = st.builds(
    lambda folder, name: f"{folder}/{name}" if folder else name, FOLDERS, st.sampled_from(NAMES)
)
OURS = ("agent.yaml", "variants.yaml")


def is_of_our_format(path: PurePosixPath) -> bool:
    """Whether docs/repository-format.md gives the file a use that is not a manifest."""
    match path.parts:
        case (("clusters" | "environments"), _) | ("agents", _, ("values" | "patches"), _):
            return path.suffix == ".yaml"
        case ("agents", _, name):
            return name in OURS
        case ("agents", _, "config", *_):
            return True
    return False


def is_answered(path: str, tree: SourceTree, bundle: Bundle) -> bool:
    """Whether the file is rendered, is of our format, is named by a finding, or has no object."""
    read = {manifest.origin.base.file for manifest in bundle.manifests.values()}
    found = [*bundle.findings, *repository_files.check_repository(tree)]
    named = any(
        (one.place and one.place.file == path) or path in one.message or "more file" in one.message
        for one in found
    )
    return path in read or is_of_our_format(PurePosixPath(path)) or named or path in bundle.skipped


@given(
    st.lists(PATHS, min_size=1, max_size=8, unique=True),
    st.booleans(),
    st.sampled_from([None, "version: v1\n", "version: v1\nmanifests: ['a/**']\n"]),
)
def test_every_yaml_file_is_rendered_or_has_a_known_role_or_a_finding(
    paths: list[str], objects: bool, settings: str | None
) -> None:
    files = {
        path: config(f"n{number}") if objects else "key: value\n"
        for number, path in enumerate(paths)
    }
    tree = snapshots.of_texts(files | ({"gitops-ds.yaml": settings} if settings else {}))
    names = render.clusters(tree)
    bundle = render.render(tree, cluster=names[0] if names else "")
    left_out = settings is not None and "manifests" in settings
    for path in paths:
        outside = PurePosixPath(path).parts[0] not in ("agents", "clusters", "environments")
        if not objects and outside:
            continue  # content of other programs
        assert (left_out and outside) or is_answered(path, tree, bundle), path


def test_a_manifest_directly_in_agents_is_read() -> None:
    tree = snapshots.of_texts(
        {**SETTINGS, "agents/rbac.yaml": config("rbac"), "agents/a/ds.yaml": config("a")}
    )
    bundle = render.render(tree)
    assert {key.name for key in bundle.manifests} == {"rbac", "a"}
    assert not bundle.findings
    only = render.render(snapshots.of_texts({**SETTINGS, "agents/rbac.yaml": config("rbac")}))
    assert len(only.manifests) == 1
    assert not only.findings


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("clusters/eu.yml", "clusters/eu.yaml"),
        ("environments/production.json", "environments/production.yaml"),
        ("agents/a/values/eu.yml", "agents/a/values/eu.yaml"),
        ("agents/a/patches/old/eu.yaml", "agents/a/patches/eu.yaml"),
        ("agents/a/variant.yaml", "did you mean variants.yaml?"),
        ("agents/a/agent.yml", "did you mean agent.yaml?"),
        ("agents/a/ROLLOUT.yaml", "did you mean rollout.yaml?"),
        ("agents/a/rollout.YAML", "rename it to agents/a/rollout.yaml"),
        ("agents/a/deep/rollout.yaml", "its place is agents/NAME/rollout.yaml"),
        ("agents/rollout.yaml", "its place is agents/NAME/rollout.yaml"),
        ("agents/a/Kustomization.yaml", "did you mean kustomization.yaml?"),
        ("clusters/eu.YAML", "rename it to clusters/eu.yaml"),
    ],
)
def test_a_file_of_our_format_at_the_wrong_name_is_an_error(path: str, advice: str) -> None:
    tree = snapshots.of_texts({**SETTINGS, "agents/a/ds.yaml": config("a"), path: "{}\n"})
    found = [one for one in render.render(tree).findings if one.place and one.place.file == path]
    assert [one.refused for one in found if advice in one.message] == [True]


@pytest.mark.parametrize("path", ["A.YAML", "deep/er/a.Yml", "a.JSON", "agents/a/A.YAML"])
@pytest.mark.parametrize("settings", [{}, {"gitops-ds.yaml": "version: v1\nmanifests: ['**']\n"}])
def test_a_manifest_whose_suffix_is_not_in_lower_case_is_an_error(
    path: str, settings: dict[str, str]
) -> None:
    tree = snapshots.of_texts({**settings, "ds.yaml": config("a"), path: config("b")})
    bundle = render.render(tree)
    found = [one for one in bundle.findings if one.place and one.place.file == path]
    expected = PurePosixPath(path).with_suffix(PurePosixPath(path).suffix.lower())
    assert [one.refused for one in found if f"rename it to {expected}" in one.message] == [True]
    assert path in bundle.unread


def test_a_file_whose_suffix_is_not_in_lower_case_and_that_has_no_object_is_content() -> None:
    tree = snapshots.of_texts({"ds.yaml": config("a"), "NOTES.YAML": "key: value\n"})
    assert not render.render(tree).findings


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("gitops-ds.yml", "did you mean gitops-ds.yaml?"),
        ("GitOps-DS.yaml", "did you mean gitops-ds.yaml?"),
        ("gitopsds.yaml", "did you mean gitops-ds.yaml?"),
        ("deploy/gitops-ds.yaml", "(--path deploy)"),
    ],
)
def test_a_settings_file_that_is_not_read_is_an_error(path: str, advice: str) -> None:
    tree = snapshots.of_texts({"ds.yaml": config("a"), path: "version: v1\n"})
    found = [one for one in render.render(tree).findings if one.place and one.place.file == path]
    assert [one.refused for one in found if advice in one.message] == [True]


@pytest.mark.parametrize("path", ["a.yaml", "agents/a/more.yaml", "other/a.yaml"])
@pytest.mark.parametrize("settings", [{}, SETTINGS])
def test_a_sequence_of_manifests_is_named(path: str, settings: dict[str, str]) -> None:
    indented = config("b").strip().replace("\n", "\n  ")
    tree = snapshots.of_texts(
        {**settings, "agents/a/ds.yaml": config("a"), path: f"- {indented}\n"}
    )
    (found,) = render.render(tree).findings
    read = not settings or path.startswith("agents/")
    assert "list" in found.message if read else path in found.message
    assert found.refused is read


def test_a_pattern_that_no_file_matches_is_a_warning() -> None:
    settings = "version: v1\nmanifests: ['shared/**', 'shard/*.yaml', '!old/**']\n"
    files = {"gitops-ds.yaml": settings, "shared/a.yaml": config("a"), "other/b.yaml": config("b")}
    (found,) = render.render(snapshots.of_texts(files)).findings
    assert (found.severity, found.place and found.place.line) == (Severity.WARNING, 2)
    assert "'shard/*.yaml'" in found.message


def test_a_file_of_an_agent_without_an_object_is_reported() -> None:
    tree = snapshots.of_texts(
        {**SETTINGS, "agents/a/ds.yaml": config("a"), "agents/a/values.yaml": "key: value\n"}
    )
    found = [one for one in render.render(tree).findings if "not read" in one.message]
    assert [(one.severity, one.place.file if one.place else "") for one in found] == [
        (Severity.INFO, "agents/a/values.yaml")
    ]


def test_a_kustomization_that_is_not_read_takes_no_manifest_of_an_agent() -> None:
    kustomization = "resources: [agents/a/ds.yaml]\n"
    tree = snapshots.of_texts(
        {**SETTINGS, "agents/a/ds.yaml": config("a"), "kustomization.yaml": kustomization}
    )
    taken = frozenset({PurePosixPath("kustomization.yaml"), PurePosixPath("agents/a/ds.yaml")})
    built = SourceTree(
        None, tree.files, expanded={PurePosixPath(): config("a").encode()}, consumed=taken
    )
    found = [one for one in render.render(built).findings if one.refused]
    assert [one.place.file for one in found if one.place and "agents/a/ds.yaml" in one.message] == [
        "kustomization.yaml"
    ]


def test_the_output_of_a_kustomization_directly_in_agents_is_read() -> None:
    tree = snapshots.of_texts({**SETTINGS, "agents/kustomization.yaml": "resources: []\n"})
    built = SourceTree(
        None,
        tree.files,
        expanded={PurePosixPath("agents"): config("a").encode()},
        consumed=frozenset({PurePosixPath("agents/kustomization.yaml")}),
    )
    assert [key.name for key in render.render(built).manifests] == ["a"]


def test_the_files_of_a_check_are_those_that_are_read() -> None:
    tree = snapshots.of_texts(
        {
            **SETTINGS,
            "README.md": "",
            "other/a.yaml": config("other"),
            "agents/a/ds.yaml": config("a"),
            "agents/a/config/a.conf": "",
            "agents/a/notes.yaml": "key: value\n",
            "agents/rbac.yaml": config("rbac"),
        }
    )
    assert {str(path) for path in bundles.read_files(tree)} == {
        "gitops-ds.yaml",
        "agents/a/ds.yaml",
        "agents/a/config/a.conf",
        "agents/rbac.yaml",
    }
