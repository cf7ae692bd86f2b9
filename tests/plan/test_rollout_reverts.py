"""What takes the template of a halted rollout back, over small histories."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gitops_ds.model.duration import Duration
from gitops_ds.model.objects import CommitId, Digest, Key
from gitops_ds.model.rollouts.halted_rollout import BranchCommit, FileChange, HaltedRollout
from gitops_ds.model.rollouts.rollout_gates import GateEvidence
from gitops_ds.model.rollouts.rollout_policy import Revert
from gitops_ds.model.rollouts.staged_rollout import FailedNode, Halt
from gitops_ds.model.sources.source_tree import CommitInfo
from gitops_ds.model.values import replace
from gitops_ds.plan.rollouts import rollout_reverts
from gitops_ds.plan.rollouts.rollout_reverts import (
    BranchHistory,
    NoRevert,
    RestoreFiles,
    RevertCommits,
    choose,
)

AGENT = "agents/agent/agent-ds.yaml"
OTHER = "agents/other/other-ds.yaml"
AT = datetime(2026, 1, 1, tzinfo=UTC)
HALT = Halt(1000.0, "canary", "CrashLoopBackOff on n1", (FailedNode("n1", "CrashLoopBackOff"),))


def id(number: int) -> CommitId:
    return CommitId(f"{number:040x}")


def commit(
    number: int,
    *files: str,
    message: str = "change",
    parents: int = 1,
    content: tuple[int, int] | None = None,
) -> BranchCommit:
    """`content` before and after; without it each commit has one of its own."""
    above = tuple(id(number - 1 - n) for n in range(parents))
    info = CommitInfo(id(number), above, AT, "Ada <ada@example.com>", message)
    before, after = content or (number - 1, number)
    change = FileChange(str(before), str(after))
    return BranchCommit(info, message, dict.fromkeys(files, change))


def halted(bad: int = 2, **more: object) -> HaltedRollout:
    rollout = HaltedRollout(
        daemonset=Key("apps", "DaemonSet", "default", "agent"),
        uid="u",
        commit=id(bad),
        since=id(1),
        template=Digest("d"),
        files=frozenset({AGENT, "agents/agent", "environments/prod/values.yaml"}),
        halt=HALT,
        revert=Revert(after=Duration(120)),
    )
    return replace(rollout, **more)  # type: ignore[arg-type]


def history(*commits: BranchCommit, applied: int | None = None, path: str = "") -> BranchHistory:
    """The commits after the first one, newest first."""
    newest = commits[0].info.id
    return BranchHistory(id(1), commits, newest if applied is None else id(applied), path)


def test_the_commit_that_brought_the_template_is_reverted() -> None:
    revert = choose(halted(), history(commit(2, AGENT)))
    assert revert == RevertCommits((id(2),))


def test_commits_of_other_agents_are_left() -> None:
    later = history(commit(4, OTHER), commit(3, "README.md"), commit(2, AGENT))
    assert choose(halted(), later) == RevertCommits((id(2),))
    earlier = history(commit(4, OTHER), commit(3, AGENT), commit(2, OTHER))
    assert choose(halted(4), earlier) == RevertCommits((id(3),))


def test_every_commit_since_the_proven_template_is_reverted_newest_first() -> None:
    revert = choose(halted(3), history(commit(3, AGENT), commit(2, AGENT)))
    assert revert == RevertCommits((id(3), id(2)))


def test_files_outside_the_folder_that_set_a_value_count() -> None:
    revert = choose(halted(), history(commit(3, OTHER), commit(2, "environments/prod/values.yaml")))
    assert revert == RevertCommits((id(2),))


def test_the_only_commit_is_reverted_regardless_of_its_changes() -> None:
    revert = choose(halted(), history(commit(3, OTHER), commit(2, "environments/prod/base.yaml")))
    assert revert == RevertCommits((id(2),))


@pytest.mark.parametrize(
    "bad", [commit(2, AGENT, OTHER), commit(2, AGENT, parents=2)], ids=["mixed", "merge"]
)
def test_a_revert_of_a_larger_commit_restores_only_the_files_of_the_agent(
    bad: BranchCommit,
) -> None:
    assert choose(halted(), history(bad)) == RestoreFiles((id(2),), id(1), (AGENT,))
    revert = choose(halted(), history(commit(3, AGENT), bad))
    assert revert == NoRevert("commit 000000000000 changed the same files since")


def trailer(number: int, *commits: int, content: tuple[int, int]) -> BranchCommit:
    message = "Revert\n\nwhy\n\n" + "".join(f"Gitops-Ds-Reverts: {id(n)}\n" for n in commits)
    return commit(number, AGENT, message=message, content=content)


def test_nothing_is_written_twice() -> None:
    bad, back = commit(2, AGENT, content=(1, 2)), trailer(3, 2, content=(2, 1))
    revert = choose(halted(), history(commit(4, AGENT, content=(1, 2)), back, bad))
    assert revert == NoRevert(f"commit {id(3)[:12]} reverted it", settled=True)
    # Two commits, each with a revert of its own.
    commits = (commit(3, AGENT, content=(2, 3)), commit(2, AGENT, content=(1, 2)))
    backs = (trailer(5, 2, 3, content=(2, 1)), trailer(4, 2, 3, content=(3, 2)))
    revert = choose(halted(3), history(commit(6, AGENT, content=(1, 3)), *backs, *commits))
    assert revert == NoRevert(f"commit {id(5)[:12]} reverted it", settled=True)


@pytest.mark.parametrize(
    "claim",
    [trailer(3, 2, content=(2, 9)), commit(3, OTHER, message=f"x\n\nGitops-Ds-Reverts: {id(2)}")],
    ids=["another content", "another file"],
)
def test_a_message_alone_is_not_a_revert(claim: BranchCommit) -> None:
    revert = choose(halted(), history(claim, commit(2, AGENT, content=(1, 2))))
    assert revert == RevertCommits((id(2),))


def test_a_newer_change_of_the_agent_is_reconciled_first() -> None:
    commits = (commit(4, OTHER), commit(3, AGENT), commit(2, AGENT))
    revert = choose(halted(), history(*commits, applied=2))
    assert isinstance(revert, NoRevert)
    assert revert.settled
    assert choose(halted(), history(commit(3, OTHER), commit(2, AGENT), applied=2)) == (
        RevertCommits((id(2),))
    )


def test_a_rewritten_branch_and_an_unknown_cause_need_a_person() -> None:
    revert = choose(halted(9), history(commit(2, AGENT)))
    assert isinstance(revert, NoRevert)
    assert not revert.settled
    revert = choose(halted(3), history(commit(3, OTHER), commit(2, "README.md")))
    assert isinstance(revert, NoRevert)
    assert not revert.settled


def test_a_followed_folder_is_the_root_of_the_files() -> None:
    commits = (commit(3, AGENT), commit(2, f"fleet/{AGENT}"))
    assert choose(halted(3), history(*commits, path="fleet")) == RevertCommits((id(2),))


def test_the_message_has_the_evidence_and_the_trailers() -> None:
    nodes = tuple(FailedNode(f"n{n}", "ImagePullBackOff", "not found\nat all") for n in range(25))
    rollout = halted(halt=replace_nodes(nodes), cluster="prod")
    text = rollout_reverts.reason(rollout).splitlines()
    assert text[0] == (
        "The rollout of DaemonSet default/agent was halted in stage canary on cluster prod at "
        "1970-01-01T00:16:40Z: CrashLoopBackOff on n1"
    )
    assert text[2] == "- n0: ImagePullBackOff: not found\\x0aat all"
    assert text[-1] == "- and 5 other nodes"
    plan = RevertCommits((id(3), id(2)))
    trailers = rollout_reverts.trailers(halted(), plan)
    assert rollout_reverts.reverted("Subject\n\ntext\n\n" + "\n".join(trailers)) == (id(3), id(2))


def test_the_message_quotes_no_secret() -> None:
    nodes = (FailedNode("n1", "Failed", "https://bot:hunter2@git.example.com refused"),)
    assert "hunter2" not in rollout_reverts.reason(halted(halt=replace_nodes(nodes)))


def test_a_person_has_the_time_of_the_policy_to_act() -> None:
    assert halted().due == 1120.0


@pytest.mark.parametrize(
    "message",
    [
        "done [skip ci]",
        "[CI skip] done",
        "***NO_CI***",
        "Fixes #12",
        "closes team/agents#12",
        "resolves GH-12",
        "fixes https://git.example.com/team/agents/-/issues/12",
        "PROJ-1 #close",
        "ask @acme/admins",
    ],
)
def test_the_message_of_a_pod_gives_no_orders_to_the_forge(message: str) -> None:
    nodes = (FailedNode("n1", "Failed", message),)
    text = rollout_reverts.reason(halted(halt=replace_nodes(nodes)))
    assert message not in text
    assert message.replace(" ", "") in text.replace(" ", "")


def test_an_image_with_a_digest_stays_readable() -> None:
    nodes = (FailedNode("n1", "Failed", "registry.example.com/agent@sha256:abc is [not] there"),)
    text = rollout_reverts.reason(halted(halt=replace_nodes(nodes)))
    assert "registry.example.com/agent@sha256:abc is [not] there" in text


@pytest.mark.parametrize("text", ["![x](https://evil)", "```\n![x](https://evil)", "a `````` b"])
def test_the_text_of_a_pull_request_is_a_block_of_code(text: str) -> None:
    first, *inner, last = rollout_reverts.quoted(text).split("\n")
    assert (first, "\n".join(inner)) == (f"{last}text", text)
    assert set(last) == {"`"}
    assert last not in text


def replace_nodes(nodes: tuple[FailedNode, ...]) -> Halt:
    return Halt(HALT.at, HALT.stage, HALT.message, nodes)


def test_the_command_names_the_commit_and_its_branch() -> None:
    start = f"git revert {id(2)[:12]} && git push origin HEAD:"
    assert rollout_reverts.command(halted(), "main") == f"{start}main"
    assert rollout_reverts.command(halted(), "") == f"{start}BRANCH"


def test_the_message_of_a_failed_gate_has_its_evidence() -> None:
    gate = GateEvidence("errors", "up", "7", "below 5", ("n1",), 1)
    text = rollout_reverts.reason(
        halted(halt=Halt(HALT.at, HALT.stage, HALT.message, gate=gate))
    ).splitlines()
    assert text[1:] == ["", *(f"- {fact}" for fact in gate.lines)]
    assert len(rollout_reverts.reason(halted(halt=replace_nodes(()))).splitlines()) == 1
    nodes = tuple(FailedNode(f"n{n}", "Failed") for n in range(20))
    text = rollout_reverts.reason(halted(halt=replace_nodes(nodes))).splitlines()
    assert text[-1] == "- n19: Failed"


def test_a_long_line_of_the_message_is_cut() -> None:
    long = Halt(1000.0, "canary", "x" * 2000, gate=GateEvidence("errors", "q" * 2000, "7"))
    text = rollout_reverts.reason(halted(halt=long)).splitlines()
    assert [len(one) for one in text] == [1000, 0, 14, 1000, 10]


def test_a_commit_without_files_of_the_agent_is_taken_back_by_its_own_files() -> None:
    bad = commit(2, "environments/prod/base.yaml", content=(1, 2))
    message = f"Revert\n\nGitops-Ds-Reverts: {id(2)}\n"
    back = commit(3, "environments/prod/base.yaml", message=message, content=(2, 1))
    revert = choose(halted(), history(commit(4, "environments/prod/base.yaml"), back, bad))
    assert revert == NoRevert(f"commit {id(3)[:12]} reverted it", settled=True)
