"""An external failure is reported in one sentence (what, where, what to do) with the exit code of
the contract, and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import program
from tests.cluster.program import Desk
from tests.controlplane import free_port
from tests.http_servers import Reply, http_server
from tests.plan.world import config_map, daemonset


@dataclass
class Wrong:
    """A server that answers every request in one way, and records the requests."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def answering(wrong: Wrong) -> Iterator[Wrong]:
    def answer(request: BaseHTTPRequestHandler, _: bytes) -> Reply:
        wrong.requests.append(f"{request.command} {request.path}")
        return Reply(wrong.body, wrong.status, wrong.headers)

    with http_server(answer) as wrong.url:
        yield wrong


def kubeconfig(directory: Path, url: str, name: str = "kubeconfig") -> Path:
    file = directory / name
    file.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "me"}}],
    }))  # fmt: skip
    return file


def status(code: int, reason: str, message: str) -> bytes:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return json.dumps(body).encode()


@pytest.fixture
def at(tmp_path: Path) -> Desk:
    made = program.desk(tmp_path, tmp_path / "kubeconfig")
    made.commit("An agent", agent=daemonset())
    return made


ANSWERS = [
    (Wrong(401, status(401, "Unauthorized", "Unauthorized")), "does not accept the credentials of"),
    (
        Wrong(403, status(403, "Forbidden", 'daemonsets.apps is forbidden: User "me" cannot list')),
        "grant that permission to the account",
    ),
    (
        Wrong(409, status(409, "Conflict", "the object has been modified")),
        "the object has been modified",
    ),
    (Wrong(410, status(410, "Expired", "too old resource version")), "too old resource version"),
    (
        Wrong(429, status(429, "TooManyRequests", "slow down"), {"Retry-After": "0"}),
        "throttles requests",
    ),
    (
        Wrong(500, status(500, "InternalError", "etcd leader changed")),
        "the API server failed (500): etcd leader changed",
    ),
    (
        Wrong(503, status(503, "ServiceUnavailable", "not ready")),
        "the API server failed (503): not ready",
    ),
    (Wrong(502, b"<html>Bad Gateway</html>"), "the API server failed (502)"),
    (
        Wrong(302, b"", {"Location": "https://login.example.com"}),
        "does not answer as an API server does",
    ),
    (Wrong(200, b"<html>hello</html>"), "does not answer as an API server does"),
    (Wrong(200, b"[]"), "does not answer as an API server does"),
    (Wrong(200, b"{}"), "does not answer as an API server does"),
    *(
        (
            Wrong(200, b'{"items": %s, "metadata": {"resourceVersion": "1"}}' % items),
            "does not answer as an API server does",
        )
        for items in (b"5", b"[5]", b"[null]", b'["\xff"]')
    ),
]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("wrong", "words"), ANSWERS, ids=[f"{w.status}-{w.body[:15]!r}" for w, _ in ANSWERS]
)
@pytest.mark.parametrize("command", ["apply", "get"])
def test_an_invalid_answer_of_the_api_server_is_reported_in_a_sentence(
    wrong: Wrong, words: str, command: str, at: Desk, tmp_path: Path
) -> None:
    with answering(wrong):
        ended = at.run(command, kubeconfig=kubeconfig(tmp_path, wrong.url))
    assert (ended.code, words in ended.err, ended.err.count("\n")) == (3, True, 1), ended.err
    assert ended.out == ""
    assert [line for line in wrong.requests if not line.startswith("GET")] == []


def test_an_unreachable_server_is_reported_with_its_address_and_the_file_that_named_it(
    at: Desk, tmp_path: Path
) -> None:
    port = free_port()
    file = kubeconfig(tmp_path, f"http://127.0.0.1:{port}")
    ended = at.run("apply", kubeconfig=file)
    assert ended.code == 3
    assert f"127.0.0.1:{port} can't be reached" in ended.err
    assert str(file) in ended.err


def _broken(text: str) -> Callable[[Path], tuple[str, ...]]:
    def write(directory: Path) -> tuple[str, ...]:
        (directory / "broken").write_text(text)
        return ("--kubeconfig", str(directory / "broken"))

    return write


def _unknown_context(directory: Path) -> tuple[str, ...]:
    return ("--kubeconfig", str(kubeconfig(directory, "http://127.0.0.1:1")), "--context", "prod")


def _missing(directory: Path) -> tuple[str, ...]:
    return ("--kubeconfig", str(directory / "missing"))


KUBECONFIGS = [
    (_missing, "no kubeconfig at"),
    (_broken("{"), "broken"),
    (_broken("just words"), "broken"),
    (_broken(""), "broken"),
    (_broken("apiVersion: v1\nkind: Config\n"), "broken"),
    (_unknown_context, "prod"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("arguments", "words"), KUBECONFIGS)
def test_an_invalid_kubeconfig_is_reported_in_a_sentence_with_its_name(
    arguments: Callable[[Path], tuple[str, ...]], words: str, at: Desk, tmp_path: Path
) -> None:
    ended = at.run("apply", *arguments(tmp_path))
    assert (ended.code, words in ended.err, ended.err.count("\n")) == (3, True, 1), ended.err


@pytest.mark.slow
def test_an_unknown_context_is_answered_with_those_of_the_file(at: Desk, tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "http://127.0.0.1:1", "known")
    there = ("get", "--kubeconfig", str(file), "--context")
    near, far = at.run(*there, "tes"), at.run(*there, "production")
    assert 'no such context; did you mean "test"?' in near.err
    assert "no such context; it has test" in far.err
    body = json.loads(file.read_text())
    file.write_text(json.dumps({**body, "current-context": "gone"}))
    current = at.run("get", "--kubeconfig", str(file))
    assert "the current context gone does not exist; it has test" in current.err
    assert (near.code, far.code, current.code) == (3, 3, 3)


INVENTORIES: list[tuple[str | None, str]] = [
    (None, "No such file"),
    ("{", "kubectl get"),
    ("{}", "holds no objects"),
    ("[1, 2]", "holds no objects"),
    ('{"items": [{"kind": "Node"}]}', "holds no objects"),
    ('{"items": [{"kind": "Node", "metadata": {"name": 5, "labels": []}}]}', "Node"),
    (
        (
            '{"items": [{"kind": "DaemonSet", "apiVersion": "apps/v1", '
            '"metadata": {"name": "agent"}, '
            '"spec": 5}]}'
        ),
        "DaemonSet agent",
    ),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("content", "words"), INVENTORIES)
def test_a_wrong_inventory_is_wrong_usage(
    content: str | None, words: str, at: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "inventory.json"
    if content is not None:
        file.write_text(content)
    ended = at.run("plan", "--snapshot", str(file))
    assert (ended.code, words in ended.err, str(file) in ended.err) == (2, True, True), ended.err


def test_an_unknown_revision_is_reported(at: Desk) -> None:
    ended = at.run("apply", "--revision", "no-such-branch")
    assert (ended.code, "no-such-branch" in ended.err) == (3, True), ended.err


def test_a_directory_outside_git_is_not_applied(at: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "agent.yaml").write_text(json.dumps(daemonset()))
    ended = at.run("apply", str(outside))
    assert (ended.code, "is not in Git" in ended.err) == (2, True), ended.err


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(9)
)
FILES: list[tuple[dict[str, Any], str]] = [
    (
        {
            "bomb.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: "
            "y}\ndata:\n  a: b\n" + BOMB
        },
        "bomb.yaml",
    ),
    ({"one.yaml": config_map("same"), "two.yaml": config_map("same")}, "one.yaml"),
    (
        {
            "latin.yaml": b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: "
            b"y}\ndata: {a: \xe9}\n"
        },
        "latin.yaml",
    ),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("files", "words"), FILES, ids=["bomb", "twice", "utf-8"])
def test_bad_files_are_findings_that_stop_an_apply(
    files: dict[str, Any], words: str, at: Desk, tmp_path: Path
) -> None:
    for name, content in files.items():
        if isinstance(content, bytes):
            (at.tree / name).write_bytes(content)
        else:
            at.write(name, content)
    at.commit("Bad files")
    checked = at.run("check")
    assert (checked.code, words in checked.out) == (1, True), checked.out
    wrong = Wrong(500, b"")
    with answering(wrong):
        applied = at.run("apply", kubeconfig=kubeconfig(tmp_path, wrong.url))
    assert (applied.code, words in applied.err) == (1, True), applied.err
    assert wrong.requests == [], "the cluster was not even asked"
