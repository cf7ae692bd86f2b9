"""The commit of a template in histories of real Git: merges, rewrites, moves, and the first
installation.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from gitops_ds.core import errors
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.live import Live
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.rollouts.halted_rollout import BranchCommit, FileChange
from gitops_ds.core.rollouts.proven_templates import ProofKind, TemplateHistory, TemplateProof
from gitops_ds.core.rollouts.template_cause import RenderedCommit
from gitops_ds.core.sources.source_tree import CommitInfo
from gitops_ds.deploy.cause_finder import CauseFinder, CommitSource
from gitops_ds.deploy.live_state import LocatedBundle
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.rollouts.causes.template_causes import WantedCause
from gitops_ds.source.git import address
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.render import bundle as rendering
from tests.gitservers import Upstream
from tests.plan.world import daemonset

AGENT = Key("apps", "DaemonSet", "default", "agent")
FILE, BESIDE = "agents/agent/ds.json", "agents/beside/ds.json"


def of(name: str, tag: int) -> str:
    return json.dumps(daemonset(name, f"example.com/{name}:{tag}", "default"), indent=1)


BASE = {"gitops-ds.yaml": "version: v1\n", FILE: of("agent", 1), BESIDE: of("beside", 1)}


def agent(upstream: Upstream, tag: int = 2) -> None:
    upstream.commit({FILE: of("agent", tag)}, f"agent {tag}")


def beside(upstream: Upstream) -> None:
    upstream.commit({BESIDE: of("beside", 2)}, "beside 2")


def side(upstream: Upstream, work: Callable[[Upstream], None], name: str = "side") -> None:
    """Work on another branch, which begins at the main one."""
    upstream.git("checkout", "--quiet", "-b", name, "main")
    work(upstream)
    upstream.git("checkout", "--quiet", "main")


def work_in_steps(upstream: Upstream) -> None:
    agent(upstream, 3)
    agent(upstream)
    beside(upstream)


def merge(upstream: Upstream) -> None:
    side(upstream, agent)
    beside(upstream)
    upstream.git("merge", "--quiet", "--no-ff", "-m", "merge", "side")


def octopus(upstream: Upstream) -> None:
    side(upstream, agent)
    side(upstream, beside, "other")
    upstream.commit({"README.md": "words"}, "words")
    upstream.git("merge", "--quiet", "-m", "merge", "side", "other")


def merge_with_a_change(upstream: Upstream) -> None:
    side(upstream, beside)
    upstream.git("merge", "--quiet", "--no-ff", "--no-commit", "side")
    upstream.commit({FILE: of("agent", 2)}, "merge")


def main_into_side(upstream: Upstream) -> None:
    """The branch moves to the merge: its first parents are those of the other branch."""
    side(upstream, agent)
    beside(upstream)
    upstream.git("checkout", "--quiet", "side")
    upstream.git("merge", "--quiet", "--no-ff", "-m", "merge", "main")
    upstream.git("checkout", "--quiet", "main")
    upstream.git("merge", "--quiet", "--ff-only", "side")


def squash(upstream: Upstream) -> None:
    side(upstream, work_in_steps)
    upstream.git("merge", "--quiet", "--squash", "side")
    upstream.git("commit", "--quiet", "-m", "squash")


def cherry_pick(upstream: Upstream) -> None:
    side(upstream, agent)
    beside(upstream)
    upstream.git("cherry-pick", "side")


def empty_commits(upstream: Upstream) -> None:
    upstream.commit({}, "nothing")
    agent(upstream)
    upstream.commit({}, "nothing")


def submodule(upstream: Upstream) -> None:
    agent(upstream)
    upstream.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor/module")
    upstream.git("commit", "--quiet", "-m", "module")


def moved_folder(upstream: Upstream) -> None:
    agent(upstream)
    upstream.commit({FILE: None, "agents/other/ds.json": of("agent", 2)}, "moved")


def reverts(upstream: Upstream) -> None:
    agent(upstream)
    for _ in range(2):
        upstream.git("revert", "--no-edit", "HEAD")
    upstream.git("commit", "--quiet", "--amend", "-m", "again")


HISTORIES: Mapping[str, tuple[Callable[[Upstream], None], str]] = {
    "a merge": (merge, "merge"),
    "an octopus merge": (octopus, "merge"),
    "a merge with a change": (merge_with_a_change, "merge"),
    "the branch merged into another": (main_into_side, "agent 2"),
    "a squash": (squash, "squash"),
    "a cherry-pick": (cherry_pick, "agent 2"),
    "empty commits": (empty_commits, "agent 2"),
    "a submodule": (submodule, "agent 2"),
    "a moved folder": (moved_folder, "agent 2"),
    "a revert of a revert": (reverts, "again"),
}


@dataclass
class BranchScene:
    """A finder of causes on a repository, and what it has rendered."""

    upstream: Upstream
    repository: Repository
    renders: int = 0

    async def found(self, state: DeployerState) -> tuple[str, tuple[str, ...], bool]:
        """The subjects of the commit and of all commits of the agent's template, and whether they
        are exact. Of a template with a record, those of the record.
        """
        head = CommitId(self.upstream.git("rev-parse", "main"))
        await self.repository.fetch(head)
        snapshot = await self.repository.snapshot(head)
        bundle = rendering.render(snapshot)
        located = LocatedBundle(bundle, {}, (), commit=snapshot.commit)
        source = CommitSource(self.repository.line, self._render, self._contained)
        causes = await CauseFinder(source).of(located, state, Live({}))
        cause = causes.get(AGENT) or state.causes[AGENT]
        names = [self.upstream.git("log", "-1", "--format=%s", commit) for commit in cause.commits]
        assert self.upstream.git("log", "-1", "--format=%s", cause.commit) == cause.subject
        return cause.subject, tuple(names), cause.exact

    async def state(self) -> DeployerState:
        """The state after the present commit was applied, in which the template is proven."""
        head = CommitId(self.upstream.git("rev-parse", "main"))
        await self.repository.fetch(head)
        snapshot = await self.repository.snapshot(head)
        bundle = rendering.render(snapshot)
        source = CommitSource(self.repository.line, self._render, self._contained)
        located = LocatedBundle(bundle, {}, (), commit=snapshot.commit)
        causes = await CauseFinder(source).of(located, DeployerState(), Live({}))
        return DeployerState(last_attempted=head, last_good=head, causes=causes)

    async def _contained(self, head: CommitId, commits: Set[CommitId]) -> Set[CommitId]:
        return {commit for commit in commits if await self.repository.is_ancestor(commit, head)}

    async def _render(self, commits: Sequence[CommitId]) -> dict[CommitId, RenderedCommit]:
        self.renders += len(commits)
        return {
            commit: template_digests.rendered(
                rendering.render(await self.repository.snapshot(commit))
            )
            for commit in commits
        }


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    made = Upstream(tmp_path / "fleet.git")
    made.commit(BASE, "base")
    return made


def play(script: Callable[[BranchScene], object], upstream: Upstream) -> None:
    async def main() -> None:
        where = address.parse(str(upstream.path), allow_local=True)
        async with Repository(where, upstream.path.with_suffix(".cache")) as repository:
            done = script(BranchScene(upstream, repository))
            assert asyncio.iscoroutine(done)
            await done

    asyncio.run(main())


@pytest.mark.parametrize(("change", "expected"), HISTORIES.values(), ids=HISTORIES)
def test_the_cause_is_the_commit_of_the_branch_that_changed_the_template(
    upstream: Upstream, change: Callable[[Upstream], None], expected: str
) -> None:
    async def script(finder: BranchScene) -> None:
        state = await finder.state()
        change(upstream)
        assert await finder.found(state) == (expected, (expected,), True)
        assert finder.renders <= 3
        # a first installation finds the same one
        assert (await finder.found(DeployerState()))[0] == expected

    play(script, upstream)


def exchange(upstream: Upstream, *commits: tuple[int, str]) -> None:
    """Commits the agent with these tags, each in one of the files `a` and `b`, and the other agent
    in the other one, as far as the base has it.
    """
    for number, (tag, file) in enumerate(commits, 1):
        other = "b" if file == "a" else "a"
        contents = {f"{file}.json": of("agent", tag), f"{other}.json": of("beside", 1)}
        upstream.commit(contents, f"{number}: {tag} in {file}")


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        ([(2, "a"), (1, "a"), (1, "b")], "2: 1 in a"),
        ([(2, "a"), (2, "b")], "1: 2 in a"),
        ([(1, "b"), (2, "b"), (2, "a")], "2: 2 in b"),
        ([(1, "b"), (2, "b"), (3, "b"), (3, "a"), (3, "b")], "3: 3 in b"),
        ([(2, "a"), (3, "b")], "2: 3 in b"),
        ([(2, "a"), (1, "b"), (1, "a")], "2: 1 in b"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(f"{n}{f}" for n, f in value),
)
@pytest.mark.parametrize("words", [0, 3], ids=["adjacent", "beside other commits"])
def test_the_cause_is_found_before_a_commit_that_exchanges_two_files(
    tmp_path: Path, commits: list[tuple[int, str]], expected: str, words: int
) -> None:
    """A commit in the other file, at which the agent was there."""
    upstream = Upstream(tmp_path / "fleet.git")
    base = {"a.json": of("agent", 1), "b.json": of("beside", 1), "c.json": of("another", 0)}
    upstream.commit(base, "base")

    async def script(finder: BranchScene) -> None:
        state = await finder.state()
        exchange(upstream, *commits)
        for number in range(words):
            upstream.commit({"c.json": of("another", number + 1)}, "another")
        subject, _, exact = await finder.found(DeployerState())
        assert (subject, exact) == (expected, True), "a first installation"
        if commits[-1][0] != 1:  # else the template is the recorded one
            subject, _, exact = await finder.found(state)
            assert (subject, exact) == (expected, True)

    play(script, upstream)


def test_a_first_installation_names_the_commit_of_the_template_and_not_the_head(
    upstream: Upstream,
) -> None:
    async def script(finder: BranchScene) -> None:
        agent(upstream)
        beside(upstream)
        for number in range(3):
            upstream.commit({"README.md": str(number)}, "words")
        assert await finder.found(DeployerState()) == ("agent 2", ("agent 2",), True)
        assert finder.renders == 1

    play(script, upstream)


def rewritten(upstream: Upstream, base: str) -> None:
    """The branch loses the commits after the base, and gets another one."""
    upstream.git("reset", "--quiet", "--hard", base)
    beside(upstream)


def test_after_a_rewrite_the_cause_is_a_commit_of_the_new_branch(upstream: Upstream) -> None:
    async def script(finder: BranchScene) -> None:
        base = upstream.git("rev-parse", "main")
        proven = await finder.state()
        proof = TemplateProof("P", base, 0.0, ProofKind.FIRST, proven.causes[AGENT].source)
        histories = {AGENT: TemplateHistory(proof=proof)}
        agent(upstream)
        state = await finder.state()
        state = DeployerState(
            last_attempted=state.last_attempted, causes=state.causes, templates=histories
        )
        rewritten(upstream, base)
        assert (await finder.found(state))[0] == "base"
        upstream.commit({FILE: of("agent", 2)}, "agent 2 again")
        assert await finder.found(state) == ("agent 2 again", ("agent 2 again",), True)

    play(script, upstream)


def test_a_rewrite_to_an_earlier_commit_finds_its_cause_before_the_last_applied_one(
    upstream: Upstream,
) -> None:
    async def script(finder: BranchScene) -> None:
        agent(upstream)
        bad = upstream.git("rev-parse", "main")
        upstream.git("revert", "--no-edit", "HEAD")
        state = await finder.state()
        rewritten(upstream, bad)
        assert (await finder.found(state))[0] == "agent 2"

    play(script, upstream)


def test_a_history_that_is_too_large_is_read_once_for_a_commit() -> None:
    """Git works on it up to its limits each time."""
    starts: list[CommitId | None] = []

    async def line(since: CommitId | None, head: CommitId, most: int) -> Sequence[BranchCommit]:
        starts.append(since)
        raise errors.SourceTooLarge("countless files")

    async def main() -> None:
        finder = CauseFinder(CommitSource(line))
        wanted = {AGENT: WantedCause("template", frozenset())}
        for head in (CommitId("a" * 40), CommitId("b" * 40)):
            for _ in range(3):
                for since in (CommitId("c" * 40), None):
                    assert await finder.find(since, head, wanted) == {}

    asyncio.run(main())
    assert starts == ["c" * 40, None] * 2


@pytest.mark.parametrize(
    ("changes", "expected"), [(19, True), (20, True), (21, False), (60, False)]
)
def test_a_search_renders_at_most_20_commits(changes: int, expected: bool) -> None:
    """Each commit changes a shared file, and the oldest one the template."""
    ids = [CommitId(f"{number:040x}") for number in range(changes + 1)]
    rendered = list[CommitId]()

    async def line(since: CommitId | None, head: CommitId, most: int) -> Sequence[BranchCommit]:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        infos = [CommitInfo(id, (before,), at, "Ada", "") for before, id in pairwise(ids)]
        return [BranchCommit(info, "", {"shared": FileChange("a", "b")}) for info in infos[::-1]]

    async def render(commits: Sequence[CommitId]) -> Mapping[CommitId, RenderedCommit]:
        rendered.extend(commits)
        return {
            one: RenderedCommit({}, {AGENT: "before" if one == ids[0] else "new"})
            for one in commits
        }

    async def main() -> None:
        finder = CauseFinder(CommitSource(line, render))
        wanted = {AGENT: WantedCause("new", frozenset({"shared"}))}
        found = await finder.find(ids[0], ids[-1], wanted)
        assert found[AGENT].exact is expected
        assert len(rendered) == min(changes, 20)

    asyncio.run(main())
