"""Kustomizations through the installed kustomize or kubectl: what they become, and what none of
them may do.
"""

from __future__ import annotations

import asyncio
import functools
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from gitops_ds.core.sources.repository_limits import NO_PROGRAMS, RepositoryLimits
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.source.render import kustomization
from gitops_ds.source.renderers import expand
from gitops_ds.source.renderers.expand import Which
from gitops_ds.source.renderers.process import Means
from tests import controlplane

CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n"
DEEP = {
    "base/kustomization.yaml": "resources: [a.yaml]\nconfigMapGenerator:\n- {name: gen, files: "
    "[x.conf, renamed=y.conf]}\n",
    "base/a.yaml": CONFIG,
    "base/x.conf": "one",
    "base/y.conf": "two",
    "overlay/kustomization.yaml": "resources: [../base]\nnamePrefix: my-\npatches: [{path: "
    "p.yaml}]\ncomponents: [../part]\n",
    "overlay/p.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: patched}\n",
    "part/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: "
    "Component\ncommonAnnotations: {part: p1}\n",
    "plain.yaml": CONFIG,
}


@functools.cache
def search() -> str:
    """The PATH, and where it has neither program, the directory with our own kubectl."""
    path = os.environ["PATH"]
    return path if expand.program(path) else f"{path}:{controlplane.programs()}"


def snapshot(files: dict[str, str]) -> SourceTree:
    return SourceTree(None, {PurePosixPath(name): text.encode() for name, text in files.items()})


def run(
    files: dict[str, str], which: Which = expand.ALL, path: str | None = None, **changed: Any
) -> SourceTree:
    return asyncio.run(
        expand.expand(snapshot(files), which, Means(search=path or search(), **changed))
    )


def blocking_findings(made: SourceTree) -> list[tuple[str, str]]:
    assert all(f.refused for f in made.findings)
    return [(f.rule, str(f.place)) for f in made.findings]


def test_an_overlay_is_built_with_all_its_parts_and_they_are_consumed() -> None:
    made = run(DEEP)
    (text,) = made.expanded.values()
    assert list(made.expanded) == [PurePosixPath("overlay")]
    for expected in (
        "name: my-a\n",
        "k: patched",
        "name: my-gen-",
        "renamed: two",
        "x.conf: one",
        "part: p1",
    ):
        assert expected in text.decode()
    assert made.consumed == {PurePosixPath(n) for n in DEEP if n != "plain.yaml"}
    assert made.findings == ()
    assert len(made.files) == len(DEEP)


def test_without_a_kustomization_nothing_changes() -> None:
    before = snapshot({"a.yaml": CONFIG})
    assert asyncio.run(expand.expand(before, means=Means(search="/nowhere"))) is before


@pytest.mark.slow
def test_a_base_is_built_on_request_and_a_skipped_one_is_not() -> None:
    base, overlay = PurePosixPath("base"), PurePosixPath("overlay")
    assert list(run(DEEP, Which(also=frozenset([base]))).expanded) == [overlay, base]
    assert list(run(DEEP, Which(skip=lambda p: p.is_relative_to("overlay"))).expanded) == [base]


def test_an_unused_component_is_not_built_nor_read_as_manifests() -> None:
    made = run(
        {
            "part/kustomization.yaml": "kind: Component\npatches: [{path: p.yaml}]\n",
            "part/p.yaml": CONFIG,
        }
    )
    assert (made.expanded, len(made.consumed), made.findings) == ({}, 2, ())


REMOTE = [
    "https://example.com/base",
    "https://raw.githubusercontent.com/a/b/main/x.yaml",
    "http://example.com/x.yaml",
    "github.com/org/repo//base?ref=v1",
    "github.com/org/repo",
    "git@github.com:org/repo",
    "org@host:repo",
    "git::https://example.com/repo",
    "ssh://git@example.com/repo",
    "file:///etc",
    "gh:org/repo",
    "host.example.com:org/repo.git",
    "../base?ref=main",
]


@pytest.mark.parametrize("text", REMOTE)
@pytest.mark.parametrize(
    "field", ["resources: [{}]", "bases: [{}]", "Components: [{}]", "patches: [{{path: {}}}]"]
)
def test_remote_resources_are_rejected_before_any_program_runs(
    text: str, field: str, tmp_path: Path
) -> None:
    program(tmp_path, f"touch {tmp_path}/ran")
    made = run(
        {"d/kustomization.yaml": f"namePrefix: x\n{field.format(repr(text))}\n"}, path=str(tmp_path)
    )
    ((rule, place),) = blocking_findings(made)
    assert rule == "SRC011"
    assert place.startswith("d/kustomization.yaml:2:")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "text",
    [
        "configMapGenerator: [{name: a, files: ['k=https://example.com/x']}]",
        "secretGenerator: [{name: a, envs: ['https://example.com/x']}]",
        "openapi: {path: 'https://example.com/x'}",
        "replacements: [{path: 'https://example.com/x'}]",
        "crds: ['https://example.com/x']",
    ],
)
def test_no_other_field_may_name_a_url_either(text: str) -> None:
    assert [rule for rule, _ in blocking_findings(run({"kustomization.yaml": text}))] == ["SRC011"]


def test_a_remote_base_of_a_base_is_found_at_its_own_line() -> None:
    files = {
        "o/kustomization.yaml": "resources: [../b]",
        "b/kustomization.yml": "resources:\n- https://example.com/x\n",
    }
    assert blocking_findings(run(files)) == [("SRC011", "b/kustomization.yml:2:3")]


@pytest.mark.parametrize("name", ["gone.yaml", "../../etc/passwd", "/etc/passwd", "empty"])
def test_a_file_that_is_not_in_the_repository_is_named(name: str) -> None:
    made = run(
        {
            "d/kustomization.yaml": f"resources:\n- a.yaml\n- {name}\n",
            "d/a.yaml": CONFIG,
            "d/empty/x.txt": "",
        }
    )
    assert blocking_findings(made) == [("SRC012", "d/kustomization.yaml:3:3")]
    assert PurePosixPath("d/a.yaml") in made.consumed
    assert made.expanded == {}


@pytest.mark.parametrize(
    "text",
    [
        "helmCharts: [{name: a, repo: https://example.com}]",
        "a: b\n---\nc: d\n",
        "- a\n",
        "a: [\n",
        "",
    ],
)
def test_helm_and_what_is_not_a_kustomization_are_refused(text: str) -> None:
    assert all(
        place.startswith("kustomization.yaml")
        for _, place in blocking_findings(run({"kustomization.yaml": text}))
    )
    assert len(blocking_findings(run({"kustomization.yaml": text}))) == 1


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("resources: [a.yaml]\nbogus: 1\n", 'unknown field "bogus"'),
        (
            (
                "resources: [a.yaml]\npatches: [{path: a.yaml, target: {kind: Nope}}]\nnamePrefix: "
                "[x]\n"
            ),
            "kustomize failed",
        ),
        ("resources: [../e]\n", "cycle"),
        ("resources: [../x.yaml]\n", "x.yaml"),
    ],
)
def test_kustomizes_own_complaint_is_a_finding_without_our_paths(text: str, words: str) -> None:
    files = {
        "d/kustomization.yaml": text,
        "d/a.yaml": CONFIG,
        "x.yaml": CONFIG,
        "e/kustomization.yaml": "resources: [../e]",
    }
    made = run(files, Which(also=frozenset([PurePosixPath("d")])))
    (finding,) = [f for f in made.findings if f.place and f.place.file == "d/kustomization.yaml"]
    assert finding.rule == "SRC013"
    assert words in finding.message
    assert "/tmp" not in finding.message
    assert "run.go" not in finding.message


def test_one_broken_kustomization_does_not_stop_another() -> None:
    made = run(
        {
            "a/kustomization.yaml": "bogus: 1",
            "b/kustomization.yaml": "resources: [c.yaml]",
            "b/c.yaml": CONFIG,
        }
    )
    assert (list(made.expanded), [rule for rule, _ in blocking_findings(made)]) == (
        [PurePosixPath("b")],
        ["SRC013"],
    )


def test_without_a_program_the_finding_names_what_to_install(tmp_path: Path) -> None:
    made = run(DEEP, path=str(tmp_path))
    assert blocking_findings(made) == [("SRC010", "overlay/kustomization.yaml")]
    assert "neither kustomize nor kubectl" in made.findings[0].message


def test_nothing_runs_unless_it_is_allowed(tmp_path: Path) -> None:
    program(tmp_path, "echo a: b")
    made = run(DEEP, path=str(tmp_path), allowed=NO_PROGRAMS)
    assert blocking_findings(made) == [("DS801", "overlay/kustomization.yaml")]
    assert "--allow kustomize" in made.findings[0].message
    assert made.consumed == run(DEEP).consumed


def test_a_second_build_of_the_same_runs_nothing(tmp_path: Path) -> None:
    program(tmp_path, 'echo "kind: ran"')
    cached: dict[str, Any] = {"path": str(tmp_path), "cache": tmp_path / "kept"}
    first = run(DEEP, **cached)
    # The same program by every property that is visible without running it, but with another
    # output.
    before = (tmp_path / "kustomize").stat()
    (tmp_path / "kustomize").write_text('#!/bin/sh\necho "kind: RAN"\n')
    os.utime(tmp_path / "kustomize", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert run(DEEP, **cached).expanded == first.expanded
    assert run({**DEEP, "base/x.conf": "other"}, **cached).expanded != first.expanded


def program(directory: Path, script: str) -> None:
    file = directory / "kustomize"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def test_kustomize_runs_without_our_environment_in_a_directory_for_us_alone(tmp_path: Path) -> None:
    program(tmp_path, '/usr/bin/env; /usr/bin/stat -c "mode=%a" "$2/../.."')
    made = run({"d/kustomization.yaml": "namePrefix: x"}, path=str(tmp_path))
    assert made.findings == ()
    (text,) = made.expanded.values()
    lines = text.decode().splitlines()
    assert "mode=700" in lines
    assert "HTTPS_PROXY=http://127.0.0.1:9" in lines
    assert {line.split("=")[0] for line in lines} - {"PWD", "mode"} <= {
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "PATH",
        "HOME",
        "TMPDIR",
        "GIT_ALLOW_PROTOCOL",
        "LC_ALL",
        "OLDPWD",
        "_",
    }


def test_a_build_that_does_not_end_is_ended_with_all_its_children(tmp_path: Path) -> None:
    program(tmp_path, "/bin/sleep 600 & /bin/sleep 600")
    made = run(
        {"d/kustomization.yaml": "namePrefix: x"},
        path=str(tmp_path),
        limits=RepositoryLimits(seconds=0.5),
    )
    assert "within 0.5 s" in made.findings[0].message


def test_an_output_over_the_cap_is_refused(tmp_path: Path) -> None:
    program(tmp_path, "exec /bin/dd if=/dev/zero bs=1000 count=1000")
    made = run(
        {"d/kustomization.yaml": "namePrefix: x"},
        path=str(tmp_path),
        limits=RepositoryLimits(bytes=100_000),
    )
    assert [rule for rule, _ in blocking_findings(made)] == ["SRC013"]


def test_the_names_of_a_kustomization_in_a_hidden_directory_do_not_count() -> None:
    assert kustomization.find(snapshot({".x/kustomization.yaml": "a"}).files, lambda _: False) == {}


RESOURCES = "resources: [../{}]\n"


@pytest.mark.parametrize(
    ("references", "way"),
    [
        ({"a": "b", "b": "a"}, "a b a"),
        ({"b": "c", "c": "d", "d": "b"}, "b c d b"),
        ({"a": "a"}, "a a"),
        ({"d": "c", "c": "d"}, "c d c"),
    ],
)
def test_kustomizations_that_refer_to_each_other_are_an_error(
    references: dict[str, str], way: str
) -> None:
    files = {f"{one}/kustomization.yaml": RESOURCES.format(to) for one, to in references.items()}
    alone = {"z/kustomization.yaml": "resources: [ds.yaml]\n", "z/ds.yaml": CONFIG}
    made = run({**files, **alone})
    (found,) = made.findings
    assert (found.rule, found.refused) == ("SRC013", True)
    assert " → ".join(f"{one}/kustomization.yaml" for one in way.split()) in found.message
    assert made.expanded.keys() == {PurePosixPath("z")}
    assert found.place
    assert (found.place.file, found.place.line) == (f"{way[0]}/kustomization.yaml", 1)


def test_two_cycles_are_two_errors_and_unused_components_have_no_error() -> None:
    component = "kind: Component\n" + RESOURCES.replace("resources", "components")
    files = {
        **{f"{one}/kustomization.yaml": RESOURCES.format(to) for one, to in ("ab", "ba", "cc")},
        **{f"{one}/kustomization.yaml": component.format(to) for one, to in ("xy", "yx")},
    }
    assert len(blocking_findings(run(files))) == 2
