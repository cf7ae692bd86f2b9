"""Git's words for a revision, in the clones that people have: of a path, of a URL, and put together
manually; and which repository `-C` means where a bare one lies in a work tree.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gitops_ds.core.errors import GitopsError
from gitops_ds.deploy.pipeline import open_repository
from tests.agent_manifest import agent
from tests.ci_files.files import ROOT
from tests.cli.commands import invoked
from tests.gitservers import git


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """Three commits on main, which name the images 1, 2 and 3; v1 is the second."""
    directory = tmp_path / "upstream"
    directory.mkdir()
    git(directory, "init", "--quiet", "--initial-branch=main")
    for image in (1, 2, 3):
        (directory / "agent.yaml").write_text(agent(image=f"registry.example/agent:1.0.{image}"))
        git(directory, "add", "--all")
        git(directory, "commit", "--quiet", "--message", f"image {image}")
    git(directory, "tag", "--annotate", "v1", "--message", "first", "HEAD~1")
    return directory


def by_path(upstream: Path, clone: Path) -> None:
    git(upstream.parent, "clone", "--quiet", str(upstream), str(clone))


def by_url(upstream: Path, clone: Path) -> None:
    git(upstream.parent, "clone", "--quiet", upstream.as_uri(), str(clone))


def manual_change(upstream: Path, clone: Path) -> None:
    git(upstream.parent, "init", "--quiet", "--initial-branch=main", str(clone))
    git(clone, "remote", "add", "origin", str(upstream))
    git(clone, "fetch", "--quiet", "origin")
    git(clone, "checkout", "--quiet", "-b", "main", "--track", "origin/main")


WORDS = (
    "origin/main",
    "origin/main~0",
    "HEAD~1",
    "HEAD^",
    "@~",
    "@{u}",
    "@{upstream}~1",
    "main@{1}",
    "v1",
    "v1^",
    "v1^{}",
    "v1~1^{commit}",
)


@pytest.mark.slow
@pytest.mark.parametrize("made", [by_path, by_url, manual_change])
def test_a_base_and_a_revision_are_named_as_in_git(
    upstream: Path, tmp_path: Path, made: Callable[[Path, Path], None]
) -> None:
    clone = tmp_path / "clone"
    made(upstream, clone)
    (clone / "agent.yaml").write_text(agent(image="registry.example/agent:1.0.4"))
    git(clone, "commit", "--quiet", "--all", "--message", "not pushed")
    for word in (
        *WORDS,
        git(clone, "rev-parse", "--short", "v1"),
        git(clone, "rev-parse", "--short", "HEAD"),
    ):
        meant = git(clone, "show", f"{word}:agent.yaml").partition('image: "')[2].partition('"')[0]
        assert meant in run(tmp_path, "render", str(clone), "--revision", word), word
        report = json.loads(run(tmp_path, "check", str(clone), "--base", word, "-o", "json"))
        fields = [
            field["old"]
            for group in report["changes"]
            for change in group["changes"]
            for field in change["fields"]
        ]
        assert fields == ([] if meant.endswith("4") else [meant]), word


@pytest.mark.parametrize("page", ["README.md", "docs/reference/commands/snapshot.md"])
def test_the_bases_of_the_documentation_are_known_in_a_clone(
    upstream: Path, tmp_path: Path, page: str
) -> None:
    clone = tmp_path / "clone"
    by_url(upstream, clone)
    named = set(re.findall(r"gitops-ds check --base (\S+?)[`\s]", (ROOT / page).read_text()))
    assert "origin/main" in named
    for base in named:
        assert "changes" in json.loads(
            run(tmp_path, "check", str(clone), "--base", base, "-o", "json")
        )


def test_a_server_resolves_ancestors_and_names_what_it_has_for_a_clones_own_words(
    upstream: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(upstream), str(bare))
    assert "agent:1.0.2" in run(tmp_path, "render", bare.as_uri(), "--revision", "main~1")
    assert "did you mean main?" in run(
        tmp_path, "render", bare.as_uri(), "--revision", "origin/main", code=3
    )
    assert "main~9" in run(tmp_path, "render", bare.as_uri(), "--revision", "main~9", code=3)


def test_a_clone_runs_nothing_while_a_revision_is_resolved(upstream: Path, tmp_path: Path) -> None:
    clone, made = tmp_path / "clone", tmp_path / "made"
    by_path(upstream, clone)
    for key in (
        "core.fsmonitor",
        "core.sshCommand",
        "core.pager",
        "alias.rev-parse",
        "core.hooksPath",
    ):
        git(clone, "config", key, f"touch {made}; false")
    assert "agent:1.0.3" in run(tmp_path, "render", str(clone), "--revision", "origin/main")
    assert not made.exists()


def run(home: Path, *words: str, code: int = 0) -> str:
    """What the command prints, or the message of its error."""
    done = invoked(*words, GITOPS_DS_CACHE=str(home / "cache"))
    if isinstance(done.exception, GitopsError):
        assert done.exception.exit_code == code
        return str(done.exception)
    assert (done.exception, done.return_value) == (None, code), done.output
    return done.stdout


def test_hold_release_and_wait_take_the_same_words_and_an_id_without_a_repository(
    upstream: Path, tmp_path: Path
) -> None:
    by_path(upstream, clone := tmp_path / "clone")
    for words in ("HEAD~1", "origin/main~1", "v1", "v1^{commit}", "main^"):
        assert asyncio.run(open_repository.commit_named(words, str(clone))) == git(
            clone, "rev-parse", "main~1"
        )
    for id in ("ABCDEF1", "f" * 40):
        assert (
            asyncio.run(open_repository.commit_named(id, str(tmp_path / "nowhere"))) == id.lower()
        )


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "init", "--quiet", "--bare", "agents")
    return tmp_path / "agents"


def test_it_is_the_repository_that_was_named(bare: Path) -> None:
    named = open_repository.named(str(bare))
    assert (named.display, named.path, named.directory) == (str(bare), "", None)


def test_one_that_the_work_tree_holds_is_files_of_the_work_tree_like_others(bare: Path) -> None:
    (bare / "objects/kept").touch()
    git(bare.parent, "add", "agents")
    named = open_repository.named(str(bare))
    assert (named.display, named.path, named.directory) == (str(bare.parent), "agents", bare.parent)
