"""The words of a revert after a halted rollout: its evidence, what it takes back, and the command
for a manual one. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gitops_ds.core.objects import short
from gitops_ds.core.plain_text import counted
from gitops_ds.core.plain_text import line as line_of
from gitops_ds.core.redaction import texts
from gitops_ds.core.rollouts.halted_rollout import HaltedRollout
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.rollouts.causes.template_causes import BranchLine
from gitops_ds.rollouts.reverts.revert_plan import SHOWN, RevertEffect, RevertPlan

# [skip ci], ***NO_CI***, #12, GH-12, /issues/12, @team: a space follows, which ends the meaning
_OBEYED = re.compile(
    r"\[(?=(?:skip|no|ci|actions)\b)|\*\*\*(?=NO_CI)|#(?=\w)|\bGH-(?=\d)"
    r"|/(?:issues|work_items|pull|merge_requests)/(?=\d)|(?<!\w)@(?=\w)",
    re.IGNORECASE,
)


def taken_back(
    halted: HaltedRollout, plan: RevertPlan, line: BranchLine, effect: RevertEffect
) -> str:
    """What the revert takes back: each commit, in part or as a whole, and the other objects."""
    infos = {commit.info.id: commit.info for commit in line.commits}
    commits = [
        f"{'a part of ' if step.files is not None else ''}{short(step.commit)} "
        f'"{infos[step.commit].subject}" by {infos[step.commit].author}'
        for step in plan
    ]
    text = f"it takes back {' and '.join(commits)}"
    if any(step.files is not None for step in plan):
        text += f": the part of {halted.daemonset}, the other changes stay"
    if others := (*effect.other, *effect.foreign, *effect.proven):
        text += f"; also changed: {', '.join(map(str, others[:SHOWN]))}"
    return line_of(text, 1000)


def reason(halted: HaltedRollout) -> str:
    """The evidence in the message of the revert: agent, cluster, stage, time, nodes and causes; for
    a gate the query, the value and its bound.
    """
    at = timestamps.text(halted.halt.at)
    where = f" on cluster {halted.cluster}" if halted.cluster else ""
    first = (
        f"The rollout of {halted.daemonset} was halted in stage {halted.halt.stage}{where} at "
        f"{at}: {halted.halt.message}"
    )
    return _inert(texts.words("\n".join((line_of(first, 1000), *_nodes(halted)))))


def quoted(text: str) -> str:
    """The text as a block of code in Markdown, without links, images and mentions."""
    fence = "`" * (1 + max([2, *map(len, re.findall("`+", text))]))
    return f"{fence}text\n{text}\n{fence}"


def _inert(text: str) -> str:
    """The text without words that a forge or its CI obeys in a commit message: pods write messages.

    https://docs.github.com/actions/managing-workflow-runs/skipping-workflow-runs,
    https://docs.github.com/issues/tracking-your-work-with-issues/using-issues/linking-a-pull-request-to-an-issue,
    https://docs.gitlab.com/user/project/issues/managing_issues/#closing-issues-automatically
    """
    return _OBEYED.sub(r"\g<0> ", text)


def command(halted: HaltedRollout, branch: str) -> str:
    """The command for a manual revert of the commit."""
    return f"git revert {short(halted.commit)} && git push origin HEAD:{branch or 'BRANCH'}"


def _nodes(halted: HaltedRollout) -> Iterator[str]:
    nodes, gate = halted.halt.nodes, halted.halt.gate
    if nodes or gate is not None:
        yield ""
    yield from (line_of(f"- {fact}", 1000) for fact in (gate.lines if gate is not None else ()))
    for node in nodes[:SHOWN]:
        yield line_of(f"- {node.node}: {': '.join(filter(None, (node.reason, node.message)))}", 300)
    if len(nodes) > SHOWN:
        yield f"- and {counted(len(nodes) - SHOWN, 'other node')}"
