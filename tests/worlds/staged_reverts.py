"""The reverts that the service writes after the halts of a world: each is built as for a push, on a
copy of the branch in which every second commit also changes another agent.

A revert is not pushed: a world with one is that of a person who pushes the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import cast

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.core.rollouts.halted_rollout import (
    BranchCommit,
    FileChange,
    HaltedRollout,
    RolloutIdentity,
)
from gitops_ds.core.rollouts.stopped_rollouts import StoppedRollouts
from gitops_ds.core.rollouts.template_cause import RenderedCommit
from gitops_ds.core.sources.source_tree import CommitInfo, SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy.cause_finder import CauseFinder, CommitSource
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.service.rollouts.repository_context import RepositoryContext
from gitops_ds.service.rollouts.revert_writer import NotNow, RevertWriter
from gitops_ds.service.settings.repository import RepositorySettings
from gitops_ds.source.git.commit_writer import CommitReason
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.render import bundle as rendering
from tests.worlds.staged_git import StagedHistory

BESIDE = "agents/beside/config.json"


@dataclass
class Branch:
    """The copy of the branch, with the reverts that are built on it."""

    history: StagedHistory
    reverts: dict[CommitId, SourceTree] = field(default_factory=dict)

    async def fetch(self, commit: CommitId) -> None:
        """Every commit is here."""

    async def info(self, commit: CommitId) -> CommitInfo:
        tree = self.tree(commit)
        assert tree.commit is not None
        return tree.commit

    def tree(self, commit: CommitId) -> SourceTree:
        if (revert := self.reverts.get(commit)) is not None:
            return revert
        number = self.history.index(commit)
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "beside", "namespace": "default"},
            "data": {"version": str((number + 1) // 2)},
        }
        tree = self.history.tree(commit)
        return replace(tree, files={**tree.files, PurePosixPath(BESIDE): json.dumps(body).encode()})

    def changes(self, commit: CommitId) -> dict[PurePosixPath, tuple[bytes | None, bytes | None]]:
        """The files that a commit changes, each before and after."""
        tree = self.tree(commit)
        parents = tree.commit.parents if tree.commit is not None else ()
        before = self.tree(parents[0]).files if parents else {}
        pairs = {name: (before.get(name), tree.files.get(name)) for name in {*before, *tree.files}}
        return {name: pair for name, pair in sorted(pairs.items()) if pair[0] != pair[1]}

    async def line(
        self, since: CommitId | None, head: CommitId, limit: int
    ) -> tuple[BranchCommit, ...]:
        commits = await self.history.line(since, head, limit)
        return tuple(
            replace(
                commit,
                changes={
                    str(name): FileChange("a" * (before is not None), "b" * (after is not None))
                    for name, (before, after) in self.changes(commit.info.id).items()
                },
            )
            for commit in commits
        )

    async def render(self, commits: Sequence[CommitId]) -> dict[CommitId, RenderedCommit]:
        return {
            commit: template_digests.rendered(rendering.render(self.tree(commit)))
            for commit in commits
        }

    async def prepared(self, commit: CommitId) -> Prepared:
        return prepare.prepare(self.tree(commit))

    async def revert(
        self, tip: CommitId, commits: Mapping[CommitId, Sequence[str] | None], why: CommitReason
    ) -> CommitId:
        """As `git revert`; raises Refused for a file that a later commit changed."""
        files = dict(self.tree(tip).files)
        for commit, names in commits.items():
            for name, (before, after) in self.changes(commit).items():
                if names is not None and str(name) not in names:
                    continue
                if files.get(name) != after:
                    raise errors.Refused(f"{name} was changed later")
                files.pop(name, None)
                files |= {name: before} if before is not None else {}
        id = CommitId(f"{10**9 + len(self.reverts):040x}")
        info = replace(self.history.info(tip), id=id, parents=(tip,), subject=why.reason)
        self.reverts[id] = SourceTree(info, files)
        return id


@dataclass
class Reverts:
    """The reverts of a world; `fail` gets what is wrong."""

    history: StagedHistory
    fail: Callable[[str], None]
    clock: Callable[[], float]
    judged: set[RolloutIdentity] = field(default_factory=set)
    built: int = 0

    def __post_init__(self) -> None:
        self._branch = Branch(self.history)
        self._causes = CauseFinder(CommitSource(self._branch.line, self._branch.render))

    async def judge(self, stopped: StoppedRollouts | None) -> None:
        """Judges the revert of each halted rollout, once."""
        for halted in stopped.halted if stopped is not None else ():
            if stopped is not None and halted.identity not in self.judged:
                self.judged.add(halted.identity)
                await self._judge(halted, stopped)

    async def _judge(self, halted: HaltedRollout, stopped: StoppedRollouts) -> None:
        tip = self.history.id(self.history.at)
        writer = RevertWriter(
            RepositoryContext(
                repository=cast("Repository", self._branch),
                settings=RepositorySettings(url="https://git.example.com/fleet", push=True),
                emit=lambda _: None,
                clock=self.clock,
                chance=lambda: 0.0,
                stopped_rollouts=lambda: stopped,
            ),
            self._branch.prepared,
            self._causes,
            lambda _: None,
        )
        try:
            revert = await writer.build(halted, tip)
        except (errors.Refused, NotNow):
            return
        self.built += 1
        found = await self._causes.rendered((tip, revert.commit))
        before, after = found[tip], found[revert.commit]
        keys = before.manifests.keys() | after.manifests.keys()
        changed = {key for key in keys if before.manifests.get(key) != after.manifests.get(key)}
        if changed != {halted.daemonset}:
            self.fail(f"the revert of {halted.commit} changes {sorted(map(str, changed))}")
        if after.templates[halted.daemonset] == halted.template:
            self.fail(f"the revert of {halted.commit} keeps the halted template")
