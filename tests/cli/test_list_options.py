"""`get`, `status`, `events` and `history` have the options and formats of kubectl's lists."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from gitops_ds.cli.events import event_list
from gitops_ds.cli.events.event_list import ListedEvent
from gitops_ds.cli.output import table
from gitops_ds.cli.wait import watched_agents
from gitops_ds.core.objects import DAEMONSET, EVENT, NAMESPACE
from gitops_ds.status.agents import Agent
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time
from tests import schemas
from tests.cli import api_server
from tests.cli.commands import COMMANDS
from tests.cluster import program
from tests.cluster.program import Desk, Ended
from tests.cluster.test_bad_input import kubeconfig
from tests.plan import world


def daemonset(name: str, namespace: str, ready: int, **labels: str) -> dict[str, Any]:
    body = world.daemonset(name, namespace=namespace)
    body["metadata"] |= {
        "uid": f"uid-{namespace}-{name}",
        "labels": labels,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "generation": 1,
    }
    body["status"] = {
        "desiredNumberScheduled": 0,
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": ready,
        "observedGeneration": 1,
    }
    return body


def revision(number: int, image: str) -> dict[str, Any]:
    template = world.daemonset("alpha", image, "logging")["spec"]["template"]
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"alpha-{number}",
            "namespace": "logging",
            "uid": f"r-{number}",
            "labels": {"app": "alpha", "controller-revision-hash": f"hash{number}"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "DaemonSet",
                    "name": "alpha",
                    "uid": "uid-logging-alpha",
                    "controller": True,
                }
            ],
        },
        "revision": number,
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
    }


def event(name: str, reason: str, type: str, about: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "logging"},
        "involvedObject": {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "namespace": "logging",
            "name": about,
        },
        "reason": reason,
        "type": type,
        "message": reason,
        "lastTimestamp": f"2026-01-01T00:00:0{len(reason) % 10}Z",
        "count": 1,
    }


OBJECTS = {
    "/apis/apps/v1/daemonsets": [
        daemonset("alpha", "logging", 3, app="alpha", tier="node"),
        daemonset("beta", "logging", 1, app="beta"),
        daemonset("alpha", "tracing", 2, app="alpha", tier="test"),
    ],
    "/apis/apps/v1/controllerrevisions": [
        revision(1, "registry.example.com/agent:0"),
        revision(2, "registry.example.com/agent:1"),
    ],
    "/api/v1/nodes": [],
    "/api/v1/pods": [],
    "/api/v1/events": [
        event("one", "Started", "Normal", "alpha"),
        event("two", "DriftDetected", "Warning", "beta"),
    ],
}


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Desk]:
    with api_server.serving(OBJECTS) as url:
        yield program.desk(tmp_path, kubeconfig(tmp_path, url))


def lines(ended: Ended) -> list[str]:
    assert ended.code == 0, ended.err
    return ended.out.splitlines()


ALL = ["logging alpha", "logging beta", "tracing alpha"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ([], ALL),
        (["-A"], ALL),
        (["-A", "-n", "logging"], ALL),
        (["ds"], ALL),
        (["daemonsets.apps", "-n", "logging"], ["logging alpha", "logging beta"]),
        (["alpha"], ["logging alpha", "tracing alpha"]),
        (["ds/beta"], ["logging beta"]),
        (["daemonset/beta", "DaemonSet/alpha", "-n", "logging"], ["logging alpha", "logging beta"]),
        (["daemonsets.apps/beta"], ["logging beta"]),
        (["ds", "beta"], ["logging beta"]),
        (["-l", "app=alpha"], ["logging alpha", "tracing alpha"]),
        (["-l", "app=alpha,tier!=test"], ["logging alpha"]),
        (["-l", "tier in (test, other)"], ["tracing alpha"]),
        (["-l", "!tier"], ["logging beta"]),
        (["-l", "tier"], ["logging alpha", "tracing alpha"]),
        (["--sort-by", ".metadata.name"], ["logging alpha", "tracing alpha", "logging beta"]),
        (["--sort-by={.ready}"], ["logging beta", "tracing alpha", "logging alpha"]),
    ],
)
def test_get_selects_and_sorts(at: Desk, words: list[str], rows: list[str]) -> None:
    for extra in ([], ["-o", "wide"]):
        found = lines(at.run("get", *words, *extra, "--no-headers"))
        assert [" ".join(line.split()[:2]) for line in found] == rows
        headed = lines(at.run("get", *words, *extra))
        assert headed[0].startswith("NAMESPACE")
        assert len(headed) == len(found) + 1


def test_get_prints_the_formats_of_kubectl(at: Desk) -> None:
    assert lines(at.run("get", "-o", "name")) == [
        "daemonset.apps/alpha",
        "daemonset.apps/beta",
        "daemonset.apps/alpha",
    ]
    path = "jsonpath={.items[*].metadata.name}"
    assert at.run("get", "-o", path).out == "alpha beta alpha"
    path = 'jsonpath={range .items[?(@.namespace=="logging")]}{.name}={.ready}{"\\n"}{end}'
    assert at.run("get", "-o", path).out == "alpha=3\nbeta=1\n"
    one = at.run("get", "ds/beta", "-o", "json").json
    assert (one["kind"], one["metadata"]["labels"]) == ("DaemonSetStatus", {"app": "beta"})
    assert at.run("get", "ds", "beta", "-o", "jsonpath={.health.state}").out == "Healthy"
    several = at.run("get", "alpha", "-o", "json").json
    assert (several["kind"], len(several["items"])) == ("DaemonSetStatusList", 2)
    schemas.check(several, "status-list")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["get", "alpa"], 3, 'daemonsets.apps "alpa" not found: did you mean "alpha"?'),
        (["get", "zzz"], 3, "`gitops-ds get` lists them"),
        (["status", "ds/betta"], 3, 'did you mean "beta"?'),
        (["get", "-l", "a=(b"], 2, "is not a label selector"),
        (["get", "-o", "jsonpath={.a"], 2, "no closing brace"),
        (["get", "-o", "xml"], 2, "'xml' is not one of text, wide, json, yaml, name, jsonpath="),
        (["get", "--sort-by", ".nope"], 2, "the fields are available,"),
        (["get", "beta", "-l", "a=b"], 2, "exclude each other"),
        (["get", "-w", "--sort-by", ".name"], 2, "exclude each other"),
        (["events", "--field-selector", "a=b"], 2, "unknown field 'a': use type, reason"),
        (["events", "--field-selector", "type"], 2, "write FIELD=VALUE"),
    ],
)
def test_wrong_input_is_answered_with_a_hint(
    at: Desk, words: list[str], code: int, message: str
) -> None:
    ended = at.run(*words)
    assert (ended.code, message in " ".join(ended.err.split())) == (code, True), ended.err


def test_status_takes_a_name_and_the_formats(at: Desk) -> None:
    assert at.run("status", "beta", "-o", "name").out == "daemonset.apps/beta\n"
    assert at.run("status", "ds/beta", "-A", "-o", "jsonpath={.ready}").out == "1"
    assert lines(at.run("status", "beta", "--no-headers"))[0].split()[:2] == ["logging", "beta"]


def test_history_has_the_formats(at: Desk) -> None:
    history = ("history", "ds/alpha", "-n", "logging")
    assert lines(at.run(*history, "-o", "name")) == [
        "controllerrevision.apps/alpha-1",
        "controllerrevision.apps/alpha-2",
    ]
    assert [row.split()[0] for row in lines(at.run(*history, "--no-headers"))] == ["1", "2*"]
    assert lines(at.run(*history, "-o", "wide"))[1].split()[-1] == "alpha-1"
    assert at.run(*history, "-o", "jsonpath={.items[-1].revision}").out == "2"
    assert "agent:0" in at.run(*history, "--revision", "1").out
    path = "jsonpath={.spec.containers[0].image}"
    assert at.run(*history, "--revision", "1", "-o", path).out == "registry.example.com/agent:0"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], ["event/one", "event/two"]),
        (["ds/beta"], ["event/two"]),
        (["-A", "--sort-by", ".reason"], ["event/two", "event/one"]),
        (["--field-selector", "type=Warning"], ["event/two"]),
        (["--field-selector", "type!=Warning,involvedObject.name=alpha"], ["event/one"]),
        (["--field-selector", "reason=Started,type=Warning"], []),
    ],
)
def test_events_are_selected_by_fields(at: Desk, words: list[str], names: list[str]) -> None:
    assert sorted(lines(at.run("events", *words, "-o", "name"))) == sorted(names)
    if "--sort-by" in words:
        assert lines(at.run("events", *words, "-o", "name")) == names


def test_wide_events_have_the_source_and_the_name(at: Desk) -> None:
    head, *rows = lines(at.run("events", "-o", "wide"))
    assert head.split()[-2:] == ["SOURCE", "NAME"]
    assert {row.split()[-1] for row in rows} == {"one", "two"}


async def test_a_watch_of_all_shows_them_at_first_and_after_each_change() -> None:
    shown: list[list[str]] = []

    def show(agents: tuple[Agent, ...]) -> None:
        shown.append([agent.key.name for agent in agents])

    async with simulator.SimulatedCluster() as cluster:
        cluster.add_nodes(simulator.NodeSpec(f"node-{i}") for i in range(2))
        await cluster.create(DAEMONSET, world.daemonset("alpha"))
        watch = watched_agents.WatchOptions("gitops-ds", virtual_time.clock(), lambda _: None)
        async with in_background(watched_agents.follow(cluster, watch, show)):
            await cluster.create(DAEMONSET, world.daemonset("beta"))
            await asyncio.sleep(60)
    assert shown[0] == ["alpha"]
    assert shown[-1] == ["alpha", "beta"]


@contextlib.asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """A minute after its begin, and until the end of the context."""
    task = asyncio.create_task(work)
    await asyncio.sleep(60)
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_watch_of_events_shows_each_once() -> None:
    shown: list[str] = []

    def show(found: list[ListedEvent]) -> None:
        shown.extend(one.name for one in found)

    def body(name: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Event", **event(name, "Started", "Normal", "alpha")}

    async with simulator.SimulatedCluster() as cluster:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "logging"}}
        await cluster.create(NAMESPACE, namespace)
        await cluster.create(EVENT, body("one"))
        work = event_list.follow(cluster, "gitops-ds", show, lambda _: None)
        async with in_background(work):
            await cluster.create(EVENT, body("two"))
            await asyncio.sleep(30)
    assert shown == ["one", "two"]


@pytest.mark.parametrize("command", ["get", "status", "events", "history"])
def test_the_short_options_are_those_of_kubectl(command: str) -> None:
    names = {name for option in COMMANDS[command].params for name in option.opts}
    assert {"-A", "--all-namespaces", "-n", "-o", "--no-headers"} <= names


def test_states_have_colours_on_request_only(at: Desk) -> None:
    plain = at.run("get", "-o", "wide")
    assert "\x1b" not in plain.out
    coloured = at.run("get", "-o", "wide", "--color", "always")
    assert coloured.out.count("\x1b[32mHealthy\x1b[0m") == 3
    assert click.unstyle(coloured.out) == plain.out
    status = at.run("status", "beta", "--color", "always")
    assert "\x1b[32mHealthy\x1b[0m: " in status.out


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a   Failed   x", "a   \x1b[31mFailed\x1b[0m   x"),
        ("Progressing: 1 of 2", "\x1b[33mProgressing\x1b[0m: 1 of 2"),
        ("the message Failed here", "the message Failed here"),
        ("a   Failed to pull", "a   Failed to pull"),
    ],
)
def test_a_state_inside_of_a_message_has_no_colour(text: str, shown: str) -> None:
    assert table.coloured(text) == shown
