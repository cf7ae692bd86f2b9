"""Every command and every example of the documentation is true."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import controlplane
from tests.docs import pages
from tests.docs.conftest import Run
from tests.docs.pages import ROOT, Block, Section

SECTIONS = list(pages.chains(s for page in pages.PAGES for s in pages.sections(page)))


def play(section: Section, desk: Path, environment: Mapping[str, str]) -> None:
    desk.mkdir()
    pages.follow(section, desk, environment)


@pytest.mark.slow
@pytest.mark.parametrize("section", [s for s in SECTIONS if not s.needs_cluster], ids=str)
def test_every_command_runs(
    section: Section, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    play(section, tmp_path / "desk", environment)


@pytest.mark.slow
@pytest.mark.controlplane
@pytest.mark.parametrize("section", [s for s in SECTIONS if s.needs_cluster], ids=str)
def test_every_command_runs_on_a_cluster(
    section: Section, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    """On a control plane of its own: a newcomer's cluster has no other agents."""
    options = controlplane.Wanted(
        nodes=3, pod_delete_milliseconds=controlplane.POD_DELETE_MILLISECONDS
    )
    plane = controlplane.ControlPlane(tmp_path / "controlplane", options)
    path = f"{environment['PATH']}:{controlplane.programs()}"
    try:
        plane.start()
        play(
            section,
            tmp_path / "desk",
            {**environment, "PATH": path, "KUBECONFIG": str(plane.kubeconfig)},
        )
    finally:
        plane.stop()


@pytest.mark.slow
def test_the_recording_in_the_readme_is_the_demo(run: Run) -> None:
    recorded = [
        b
        for page in pages.PAGES
        for s in pages.sections(page)
        for b in s.blocks
        if b.comment == "demo"
    ]
    assert recorded
    played = run("gitops-ds", "demo", "--speed", "50")
    assert played.returncode == 0, played.stderr
    for block in recorded:
        line = pages.missing(block.text, played.stdout)
        assert not line, f"the demo does not say {line!r} there, but:\n{played.stdout}"


def test_the_examples_of_the_repository_format_make_one_repository_that_is_right(
    run: Run, tmp_path: Path
) -> None:
    blocks = [
        b
        for s in pages.sections(ROOT / "docs/repository-format.md")
        for b in s.blocks
        if b.language in ("yaml", "json")
    ]
    assert len(blocks) > 8
    desk = tmp_path / "desk"
    for block in blocks:
        assert block.file, f"the example at line {block.line} does not say which file it is"
        target = desk / block.file
        assert not target.exists(), f"{block.file} is there twice"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text)
    # advice may be given about manifests that are short for the page's sake
    checked = run("gitops-ds", "check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    rendered = run("gitops-ds", "render", "--cluster", "eu-1", "-o", "json")
    objects = {
        (item["kind"], item["metadata"]["name"]) for item in json.loads(rendered.stdout)["items"]
    }
    assert {
        ("DaemonSet", "fluent-bit"),
        ("DaemonSet", "fluent-bit-gpu"),
        ("DaemonSet", "device-plugin"),
    } <= objects


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_every_link_into_the_project_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text("utf-8"))
    for target, anchor in links:
        file = page.parent / target if target else page
        assert file.exists(), f"{pages.name(page)} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{pages.name(page)} links to {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors that a forge makes of headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_target_of_make_that_is_named_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in pages.PAGES:
        named = set(re.findall(r"`(?:[A-Z_]+=\S+ )*make ([a-z-]+)", page.read_text("utf-8")))
        assert named <= targets, f"{page.name} names {named - targets}"


@pytest.mark.parametrize(
    ("expected", "output", "left"),
    [
        ("a 1\nb", "x\na  22\nb\n", ""),
        ("b\na", "a\nb\n", "a"),
        ("revision 3", "revision 2", "revision 3"),
        ("commit 0123456789ab: 1 written", "commit ffffffffffff: 9 written", ""),
        ("all …", "all is well", ""),
        ("all", "all is well", "all"),
    ],
)
def test_output_is_compared_loosely_but_not_too_loosely(
    expected: str, output: str, left: str
) -> None:
    assert pages.missing(expected, output) == left


def test_a_comment_in_a_block_is_not_a_heading(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# T\n\n```sh\n## not a heading\ntrue\n```\n\n## One\n\n<!-- needs: cluster "
        "-->\n```sh\nfalse\n```\n"
    )
    first, second = pages.sections(page)
    assert (first.title, first.needs_cluster, second.title, second.needs_cluster) == (
        "",
        False,
        "One",
        True,
    )
    assert second.blocks == (Block("sh", "needs: cluster", "false\n", 10),)


def test_the_readme_leads_to_every_page_directly_or_by_a_page() -> None:
    reached: set[Path] = set()
    left = [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in reached:
            continue
        reached.add(page)
        links = re.findall(
            r"\]\((?!https?://)([^)#\s]+\.md)(?:#[^)\s]*)?\)", page.read_text("utf-8")
        )
        left += [(page.parent / link).resolve() for link in links]
    assert [pages.name(page) for page in pages.PAGES if page not in reached] == []
