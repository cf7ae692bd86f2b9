"""The revert of a halted rollout: its commits, its effect and its message, over small histories."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gitops_ds.core.duration import Duration
from gitops_ds.core.objects import CommitId, Digest, Key
from gitops_ds.core.rollouts.halted_rollout import BranchCommit, FileChange, HaltedRollout
from gitops_ds.core.rollouts.rollout_gates import GateEvidence
from gitops_ds.core.rollouts.rollout_policy import Revert
from gitops_ds.core.rollouts.staged_rollout import FailedNode, Halt
from gitops_ds.core.rollouts.template_cause import RenderedCommit
from gitops_ds.core.sources.source_tree import CommitInfo
from gitops_ds.core.values import replace
from gitops_ds.rollouts.causes.template_causes import BranchLine
from gitops_ds.rollouts.reverts import revert_message, revert_plan
from gitops_ds.rollouts.reverts.revert_plan import NoRevert, RevertedCommit, RevertEffect

AGENT = "agents/agent/agent-ds.yaml"
OTHER = "agents/other/other-ds.yaml"
VALUES = "environments/prod.yaml"
AT = datetime(2026, 1, 1, tzinfo=UTC)
HALT = Halt(1000.0, "canary", "CrashLoopBackOff on n1", (FailedNode("n1", "CrashLoopBackOff"),))
KEY = Key("apps", "DaemonSet", "default", "agent")
BESIDE = Key("apps", "DaemonSet", "default", "beside")


def id(number: int) -> CommitId:
    return CommitId(f"{number:012x}".ljust(40, "0"))


def commit(number: int, *files: str, message: str = "change") -> BranchCommit:
    info = CommitInfo(id(number), (id(number - 1),), AT, "Ada <ada@example.com>", message)
    return BranchCommit(info, message, dict.fromkeys(files, FileChange("", "")))


def halted(*commits: int, **more: object) -> HaltedRollout:
    commits = commits or (2,)
    rollout = HaltedRollout(
        daemonset=KEY,
        uid="u",
        commit=id(commits[0]),
        since=id(1),
        template=Digest("H"),
        files=frozenset({AGENT, "agents/agent", VALUES}),
        halt=HALT,
        revert=Revert(after=Duration(120)),
        own=frozenset({AGENT, "agents/agent"}),
        commits=tuple(map(id, commits)),
    )
    return replace(rollout, **more)  # type: ignore[arg-type]


def line(*commits: BranchCommit, path: str = "") -> BranchLine:
    """The commits after the first one, newest first."""
    return BranchLine(id(1), commits, path)


def renders(**templates: str) -> dict[CommitId, RenderedCommit]:
    """By `_NUMBER`: the templates of the agent and the one beside it, as `AB`."""
    found = {}
    for name, text in templates.items():
        both = dict(zip((KEY, BESIDE), text, strict=False))
        number = id(int(name[1:])) if name != "revert" else revert_plan.REVERT
        found[number] = RenderedCommit({key: Digest(one) for key, one in both.items()}, both)
    return found


def test_the_smallest_plan_comes_first() -> None:
    bad = line(commit(2, AGENT, VALUES, "README.md"))
    assert revert_plan.plans(halted(), bad) == (
        (RevertedCommit(id(2), (AGENT,)),),
        (RevertedCommit(id(2), (AGENT, VALUES)),),
        (RevertedCommit(id(2)),),
    )
    assert revert_plan.plans(halted(), line(commit(2, AGENT))) == ((RevertedCommit(id(2)),),)


def test_only_the_commits_of_the_template_are_reverted_newest_first() -> None:
    history = line(commit(5, VALUES), commit(4, AGENT), commit(3, OTHER), commit(2, AGENT))
    (plan,) = revert_plan.plans(halted(4, 2), history)
    assert plan == (RevertedCommit(id(4)), RevertedCommit(id(2)))


def test_a_followed_folder_is_the_root_of_the_files() -> None:
    bad = line(commit(2, AGENT, f"fleet/{AGENT}"), path="fleet")
    plans = revert_plan.plans(halted(), bad)
    assert plans == ((RevertedCommit(id(2), (f"fleet/{AGENT}",)),), (RevertedCommit(id(2)),))


def test_nothing_is_reverted_when_the_tip_has_another_template_or_the_branch_was_rewritten() -> (
    None
):
    history = line(commit(3, AGENT), commit(2, AGENT))
    obstacle = revert_plan.obstacle
    assert obstacle(halted(), history, renders(_3="HX", _2="HX")) is None
    changed = obstacle(halted(), history, renders(_3="PX", _2="HX"))
    assert changed == NoRevert(f"a commit up to {id(3)[:12]} changes the agent", settled=True)
    gone = obstacle(halted(9), history, renders(_3="HX"))
    assert gone == NoRevert(f"commit {id(9)[:12]} is not on the branch: the branch was rewritten")
    assert obstacle(halted(), history, {}) == NoRevert(f"commit {id(3)[:12]} cannot be rendered")


def test_the_tip_and_the_commits_to_revert_with_those_before_them_are_rendered() -> None:
    history = line(commit(6, OTHER), commit(5, VALUES), commit(4, AGENT), commit(2, AGENT))
    found = revert_plan.to_render(halted(4, 2), history, id(6))
    assert found == (id(6), id(4), id(3), id(2), id(1))
    merge = replace(commit(4, AGENT), info=replace(commit(4).info, parents=(id(2), id(3))))
    found = revert_plan.to_render(halted(4), line(merge, commit(2, AGENT)), id(4))
    assert found == (id(4), id(2)), "the branch itself has the first parent"


@pytest.mark.parametrize(("template", "settled"), [("P", True), ("H", False)])
def test_a_revert_counts_by_its_content_not_by_its_message(template: str, settled: bool) -> None:
    back = commit(3, AGENT, message=f"Revert\n\nGitops-Ds-Reverts: {id(2)}\n")
    history = line(commit(4, AGENT), back, commit(2, AGENT))
    assert id(3) in revert_plan.to_render(halted(), history, id(4))
    found = revert_plan.obstacle(halted(), history, renders(_4="H", _3=template, _2="H"))
    assert found == (
        NoRevert(f"commit {id(3)[:12]} reverted it", settled=True) if settled else None
    )


@pytest.mark.parametrize(
    ("templates", "proven", "expected"),
    [
        ({"_1": "PB", "_2": "HB", "revert": "PB"}, "B", RevertEffect()),
        ({"_1": "PB", "_2": "HC", "revert": "PB"}, "B", RevertEffect(other=(BESIDE,))),
        ({"_1": "PB", "_2": "HC", "revert": "PB"}, "C", RevertEffect(proven=(BESIDE,))),
        ({"_1": "PB", "_2": "HB", "revert": "PA"}, "A", RevertEffect(foreign=(BESIDE,))),
        ({"_2": "HC", "revert": "PB"}, "B", RevertEffect(foreign=(BESIDE,))),
    ],
    ids=["alone", "of the same commit", "proven", "of another commit", "before it unknown"],
)
def test_a_revert_is_judged_by_what_it_renders_to(
    templates: dict[str, str], proven: str, expected: RevertEffect
) -> None:
    history, plan = line(commit(2, AGENT)), (RevertedCommit(id(2)),)
    found = revert_plan.effect(halted(), plan, history, renders(**templates), {BESIDE: proven})
    assert found == expected
    assert bool(found.concern) == bool(expected.proven or expected.foreign)
    text = revert_message.taken_back(halted(), plan, history, found)
    assert text.startswith('it takes back 000000000002 "change" by Ada <ada@example.com>')
    assert ("DaemonSet default/beside" in text) == (expected != RevertEffect())


def test_the_message_has_the_evidence_and_the_trailers() -> None:
    nodes = tuple(FailedNode(f"n{n}", "ImagePullBackOff", "not found\nat all") for n in range(25))
    rollout = halted(halt=replace_nodes(nodes), cluster="prod")
    text = revert_message.reason(rollout).splitlines()
    assert text[0] == (
        "The rollout of DaemonSet default/agent was halted in stage canary on cluster prod at "
        "1970-01-01T00:16:40Z: CrashLoopBackOff on n1"
    )
    assert text[2] == "- n0: ImagePullBackOff: not found\\x0aat all"
    assert text[-1] == "- and 5 other nodes"
    plan = (RevertedCommit(id(3)), RevertedCommit(id(2)))
    trailers = revert_plan.trailers(halted(), plan)
    assert revert_plan.reverted("Subject\n\ntext\n\n" + "\n".join(trailers)) == (id(3), id(2))


def test_the_message_quotes_no_secret() -> None:
    nodes = (FailedNode("n1", "Failed", "https://bot:hunter2@git.example.com refused"),)
    assert "hunter2" not in revert_message.reason(halted(halt=replace_nodes(nodes)))


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
    text = revert_message.reason(halted(halt=replace_nodes(nodes)))
    assert message not in text
    assert message.replace(" ", "") in text.replace(" ", "")


def test_an_image_with_a_digest_stays_readable() -> None:
    nodes = (FailedNode("n1", "Failed", "registry.example.com/agent@sha256:abc is [not] there"),)
    text = revert_message.reason(halted(halt=replace_nodes(nodes)))
    assert "registry.example.com/agent@sha256:abc is [not] there" in text


@pytest.mark.parametrize(
    ("text", "fence"),
    [
        ("![x](https://evil)", 3),
        ("a `` b", 3),
        ("```\n![x](https://evil)", 4),
        ("a `````` b", 7),
    ],
)
def test_the_text_of_a_pull_request_is_a_block_of_code_with_the_shortest_fence(
    text: str, fence: int
) -> None:
    first, *inner, last = revert_message.quoted(text).split("\n")
    assert (first, "\n".join(inner)) == (f"{last}text", text)
    assert last == "`" * fence
    assert last not in text


def replace_nodes(nodes: tuple[FailedNode, ...]) -> Halt:
    return Halt(HALT.at, HALT.stage, HALT.message, nodes)


def test_the_command_names_the_commit_and_its_branch() -> None:
    start = f"git revert {id(2)[:12]} && git push origin HEAD:"
    assert revert_message.command(halted(), "main") == f"{start}main"
    assert revert_message.command(halted(), "") == f"{start}BRANCH"


def test_the_message_of_a_failed_gate_has_its_evidence() -> None:
    gate = GateEvidence("errors", "up", "7", "below 5", ("n1",), 1)
    text = revert_message.reason(
        halted(halt=Halt(HALT.at, HALT.stage, HALT.message, gate=gate))
    ).splitlines()
    assert text[1:] == ["", *(f"- {fact}" for fact in gate.lines)]
    assert len(revert_message.reason(halted(halt=replace_nodes(()))).splitlines()) == 1
    nodes = tuple(FailedNode(f"n{n}", "Failed") for n in range(20))
    text = revert_message.reason(halted(halt=replace_nodes(nodes))).splitlines()
    assert text[-1] == "- n19: Failed"


def test_a_long_line_of_the_message_is_cut() -> None:
    long = Halt(1000.0, "canary", "x" * 2000, gate=GateEvidence("errors", "q" * 2000, "7"))
    text = revert_message.reason(halted(halt=long)).splitlines()
    assert [len(one) for one in text] == [1000, 0, 14, 1000, 10]
    nodes = (FailedNode("n1", "Failed", "x" * 2000),)
    text = revert_message.reason(halted(halt=replace_nodes(nodes))).splitlines()
    assert len(text[2]) == 300


def test_the_goal_is_the_template_before_the_oldest_commit_to_revert() -> None:
    history = line(commit(5, VALUES), commit(4, AGENT), commit(3, OTHER), commit(2, AGENT))
    templates = renders(_1="PB", _2="HB", _3="HB")
    assert revert_plan.goal(halted(4, 2), history, templates) == "P"
    assert revert_plan.goal(halted(4), history, templates) == "H"
    assert revert_plan.goal(halted(5), history, templates) is None  # not rendered
    first = line(replace(commit(2, AGENT), info=replace(commit(2, AGENT).info, parents=())))
    assert revert_plan.goal(halted(), first, templates) is None
