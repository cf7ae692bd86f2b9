"""The page of a node, and the table of nodes, show the agents that a node waits for."""

from __future__ import annotations

import asyncio

from gitops_ds.core.objects import Key
from gitops_ds.core.startup_taints import AgentWait, NodeWait
from gitops_ds.service.web.page.pages import Book
from tests.page.fleets import NOW, Show, story, text

AGENT = Key("apps", "DaemonSet", "kube-system", "cilium")


def page(view: Show, path: str) -> str:
    """The text of the parts of a page, without its tags."""
    drawn = asyncio.run(Book(view).page(path, {}))
    return text(" ".join(drawn.pieces.values()))


def test_a_node_that_waits_names_the_agent_and_the_cause() -> None:
    view = story(9)
    name = view.agents()[0].seen.nodes[0].name
    assert "No work yet" not in page(view, f"nodes/{name}")
    assert "gets no work yet" not in page(view, "nodes")
    wait = AgentWait(AGENT, "ImagePullBackOff", "container agent: not found")
    view.waiting = {name: NodeWait(name, "uid", NOW - 60, (wait,))}
    found = page(view, f"nodes/{name}")
    assert "No work yet" in found
    assert "cilium Image pull back off container agent: not found" in found
    assert page(view, "nodes").count("gets no work yet") == 1


def test_a_node_that_keeps_its_taint_for_another_cause_names_it() -> None:
    view = story(9)
    name = view.agents()[0].seen.nodes[0].name
    view.waiting = {name: NodeWait(name, "uid", NOW - 60, (), cause="the API server refuses")}
    found = page(view, f"nodes/{name}")
    assert "the API server refuses" in found
    assert "required agents" not in found


def test_an_agent_names_the_nodes_that_wait_for_it() -> None:
    view = story(9)
    one, other = view.agents()[:2]
    path = f"agents/{one.key.namespace}/{one.key.name}"
    assert "No work yet" not in page(view, path)
    waits = {
        "node-x": NodeWait("node-x", "x", NOW, (AgentWait(one.key, "NotReady"),)),
        "node-y": NodeWait("node-y", "y", NOW, (AgentWait(other.key, "NotReady"),)),
    }
    view.waiting = waits
    assert "No work yet on 1 node, which waits for this agent: node-x Not ready" in page(view, path)
