"""`status` of a rollout has a row for each node with a problem, and a line for those that wait."""

from __future__ import annotations

from gitops_ds.cli.status import agent_text


def entry(number: int, reason: str = "Outdated", blame: str = "unknown") -> dict[str, str]:
    return {"node": f"node-{number:02}", "reason": reason, "blame": blame}


def test_many_nodes_in_progress_are_a_line() -> None:
    waiting = [entry(number) for number in range(36)]
    problem = entry(40, "ErrImagePull", "template")
    starting = entry(41, "Starting")
    found = agent_text.grouped_nodes([*waiting, problem, starting])
    assert found.rows == [problem, starting]
    names = "node-00, node-01, node-02"
    assert found.lines == [f"Outdated: 36 nodes, such as {names}; --nodes lists every node"]


def test_few_nodes_and_those_with_a_problem_have_rows() -> None:
    few = [entry(number) for number in range(agent_text.WAITING_ROWS)]
    problems = [entry(10 + number, "NotReady", "node") for number in range(20)]
    assert agent_text.grouped_nodes([*few, *problems]) == agent_text.GroupedNodes(
        [*few, *problems], []
    )


def test_of_many_nodes_with_the_same_problem_the_first_have_rows() -> None:
    failing = [entry(number, "ErrImagePull", "template") for number in range(25)]
    others = [entry(30 + number, "ErrImagePull", "node") for number in range(3)]
    found = agent_text.grouped_nodes([*failing, *others])
    assert found.rows == [*failing[: agent_text.PROBLEM_ROWS], *others]
    names = "node-20, node-21, node-22"
    line = f"ErrImagePull: 5 more nodes, such as {names}; --nodes lists every node"
    assert found.lines == [line]
