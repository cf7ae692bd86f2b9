"""`doctor` looks at what a service lives from: every repository, the election, and the files that
settings name.
"""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.cli.doctor import checks, repositories
from gitops_ds.cli.doctor import service as doctor_service
from gitops_ds.cli.doctor.result import CheckVerdict
from gitops_ds.core.objects import LEASE, NAMESPACE
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.service.settings import service
from gitops_ds.service.settings.base import decode
from gitops_ds.service.settings.repository import RepositorySettings
from gitops_ds.testing import simulator
from tests import gitservers
from tests.cluster import program
from tests.plan.world import daemonset

KEY = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes(32)).decode()


def files(document: dict[str, Any]) -> list[tuple[str, CheckVerdict, str]]:
    return [
        (line.name, line.verdict, line.message)
        for line in doctor_service.files(service.parse(document))
    ]


@pytest.mark.parametrize(
    ("program", "isolation", "has_landlock", "verdict", "words"),
    [
        (("kustomize", "build"), "seccomp", True, CheckVerdict.OK, "and without other files"),
        (("kustomize", "build"), "seccomp", False, CheckVerdict.WARNING, "has no Landlock"),
        (("kustomize", "build"), "none", True, CheckVerdict.WARNING, "can't be isolated"),
        (None, "seccomp", True, CheckVerdict.WARNING, "neither kustomize nor kubectl"),
    ],
)
def test_what_programs_of_a_repository_can_reach_is_named(
    program: tuple[str, ...] | None,
    isolation: str,
    has_landlock: bool,
    verdict: CheckVerdict,
    words: str,
) -> None:
    line = checks.renderers(program, isolation, has_landlock=has_landlock)
    assert line.verdict is verdict
    assert words in line.message


def test_each_secret_of_a_webhook_is_looked_at_where_it_is_named(tmp_path: Path) -> None:
    good, short, empty = (tmp_path / name for name in ("good", "short", "empty"))
    good.write_text(f"{'a' * 32}\n{'b' * 32}\n")
    short.write_text(f"{'a' * 32}\nguess\n")
    empty.write_text("\n")
    repositories = [
        {"url": "https://git.example.com/a", "webhook": {"secretFile": str(short)}},
        {"url": "https://git.example.com/b"},
        {"url": "https://git.example.com/c", "webhook": {"secretFile": str(empty)}},
        {"url": "https://git.example.com/d", "webhook": {"secretFile": str(tmp_path / "nowhere")}},
    ]
    listen = {
        "address": "127.0.0.1:8080",
        "webhook": {"secretFile": str(good)},
        "page": {"enabled": False},
    }
    assert files({"listen": listen, "repositories": repositories}) == [
        ("webhook", CheckVerdict.OK, "listen.webhook.secretFile: 2 secrets"),
        (
            "webhook",
            CheckVerdict.WARNING,
            "repositories[0].webhook.secretFile: 1 of 2 secrets can be guessed",
        ),
        (
            "webhook",
            CheckVerdict.BAD,
            f"repositories[2].webhook.secretFile: {empty}: empty; a line with a secret is expected",
        ),
        (
            "webhook",
            CheckVerdict.BAD,
            f"repositories[3].webhook.secretFile: {tmp_path}/nowhere: No such file or directory",
        ),
    ]


def test_a_webhook_without_an_address_is_reported(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a" * 32)
    found = files(
        {
            "repository": {
                "url": "https://git.example.com/a",
                "webhook": {"secretFile": str(tmp_path / "secret")},
            }
        }
    )
    assert [(name, verdict) for name, verdict, _ in found] == [
        ("webhook", CheckVerdict.WARNING),
        ("webhook", CheckVerdict.OK),
    ]
    assert "no address to listen on" in found[0][2]


@pytest.mark.parametrize(
    ("token", "verdict", "words"),
    [
        ("a" * 32, CheckVerdict.OK, "served at :8080, access by token"),
        ("guess", CheckVerdict.BAD, "at least 16 characters"),
        (None, CheckVerdict.BAD, "No such file"),
    ],
)
def test_the_token_of_the_page_is_looked_at(
    tmp_path: Path, token: str | None, verdict: CheckVerdict, words: str
) -> None:
    if token is not None:
        (tmp_path / "token").write_text(token)
    ((name, found, message),) = files(
        {"listen": {"address": ":8080", "page": {"tokenFile": str(tmp_path / "token")}}}
    )
    assert (name, found, words in message) == ("page", verdict, True)


def test_a_page_that_is_open_to_everybody_is_bad() -> None:
    ((_, verdict, message),) = files({"listen": {"address": ":8080", "page": {"access": "open"}}})
    assert (verdict, "open to every host" in message) == (CheckVerdict.BAD, True)


@pytest.mark.parametrize(
    ("url", "secret", "verdict", "words"),
    [
        (
            "https://chat.example.com/hunter2",
            "x" * 32,
            CheckVerdict.OK,
            "room: its files can be read",
        ),
        ("http://chat.example.com/hunter2", "x" * 32, CheckVerdict.WARNING, "over http"),
        ("chat.example.com/hunter2", "x" * 32, CheckVerdict.BAD, "must contain an address"),
        (None, "x" * 32, CheckVerdict.BAD, "notify.room.urlFile"),
        ("https://chat.example.com/hunter2", "", CheckVerdict.BAD, "is empty"),
    ],
)
def test_the_files_of_a_receiver_are_checked_and_not_printed(
    tmp_path: Path, url: str | None, secret: str, verdict: CheckVerdict, words: str
) -> None:
    if url is not None:
        (tmp_path / "url").write_text(f"{url}\n")
    (tmp_path / "secret").write_text(secret)
    receiver = {
        "name": "room",
        "urlFile": str(tmp_path / "url"),
        "secretFile": str(tmp_path / "secret"),
    }
    ((name, found, message),) = files({"notify": [receiver]})
    assert (name, found, words in message) == ("notify", verdict, True)
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("forge", "token", "verdict", "words"),
    [
        (
            {"kind": "gitea", "url": "https://git.example.com"},
            "abc",
            CheckVerdict.OK,
            "team/fleet at https://git.example.com",
        ),
        (
            {"kind": "gitea", "url": "https://git.example.com"},
            "",
            CheckVerdict.BAD,
            "contains no token",
        ),
        ({"kind": "gitea", "url": "http://git.example.com"}, "abc", CheckVerdict.BAD, "allowHttp"),
    ],
)
def test_the_forge_of_a_repository_is_looked_at(
    tmp_path: Path, forge: dict[str, str], token: str, verdict: CheckVerdict, words: str
) -> None:
    (tmp_path / "token").write_text(token)
    url = "https://git.example.com/team/fleet.git"
    ((name, found, message),) = files(
        {"repository": {"url": url, "forge": {**forge, "tokenFile": str(tmp_path / "token")}}}
    )
    assert (name, found, words in message) == ("forge", verdict, True)


@pytest.mark.parametrize(
    ("spec", "verdict", "words"),
    [
        (None, CheckVerdict.OK, "no replica has been leader"),
        (
            {"holderIdentity": "pod-1", "leaseDurationSeconds": 10, "renewTime": -3},
            CheckVerdict.OK,
            "pod-1 leads",
        ),
        (
            {"holderIdentity": "pod-1", "leaseDurationSeconds": 10, "renewTime": -600},
            CheckVerdict.WARNING,
            "did not renew it for 10m",
        ),
        ({"leaseDurationSeconds": 1, "renewTime": -600}, CheckVerdict.WARNING, "has no holder"),
    ],
)
async def test_the_leader_and_its_state_are_reported(
    spec: dict[str, Any] | None, verdict: CheckVerdict, words: str
) -> None:
    async with simulator.SimulatedCluster() as cluster:
        clock = simulator.virtual_time.clock()
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gitops-ds"}}
        await cluster.create(NAMESPACE, namespace)
        if spec is not None:
            held = {**spec, "renewTime": timestamps.micros(clock() + spec["renewTime"])}
            metadata = {"namespace": "gitops-ds", "name": "gitops-ds"}
            head = {"apiVersion": LEASE.api_version, "kind": "Lease"}
            await cluster.create(LEASE, {**head, "metadata": metadata, "spec": held})
        found = await doctor_service.election(cluster, service.parse({}), clock())
    assert (found.name, found.verdict, words in found.message) == ("election", verdict, True)
    assert bool(found.advice) == (verdict is not CheckVerdict.OK)


@pytest.mark.parametrize(
    ("text", "verdict", "words"),
    [
        (f"a@example.com ssh-ed25519 {KEY} me\n# a comment\n", CheckVerdict.OK, "1 keys are valid"),
        (
            f'a@example.com,b@* namespaces="git",valid-before="20990101" ssh-ed25519 {KEY}\n',
            CheckVerdict.OK,
            "1 keys are valid",
        ),
        (f"ssh-ed25519 {KEY} a@example.com\n", CheckVerdict.BAD, "line 1 names no key"),
        (f"a@example.com ssh-rsa {KEY}\n", CheckVerdict.BAD, "line 1 names no key"),
        (
            f"a@example.com ssh-ed25519 {KEY}\nb@example.com {'a' * 5000}\n",
            CheckVerdict.BAD,
            "line 2 names no key",
        ),
        (
            f'a@example.com valid-before="20200101Z" ssh-ed25519 {KEY}\n',
            CheckVerdict.BAD,
            "all 1 are expired or revoked",
        ),
        (
            f'a@x valid-before="202001010000" ssh-ed25519 {KEY}\nb@x ssh-ed25519 {KEY}\n',
            CheckVerdict.WARNING,
            "1 of 2 keys are expired or revoked",
        ),
        ("", CheckVerdict.BAD, "no key is valid"),
    ],
)
def test_keys_whose_signatures_count_are_looked_at(
    tmp_path: Path, text: str, verdict: CheckVerdict, words: str
) -> None:
    (tmp_path / "signers").write_text(text)
    verify = {"mode": "head", "allowedSignersFile": str(tmp_path / "signers")}
    settings = decode(RepositorySettings, {"url": "https://git.example.com/a", "verify": verify})
    lines = asyncio.run(repositories.key_lines(settings, "https://git.example.com/a", 1.8e9))
    assert lines[0].verdict is verdict
    assert words in lines[0].message
    assert KEY not in "".join(map(str, lines))


def test_every_repository_of_the_settings_is_read_and_the_bad_one_named(tmp_path: Path) -> None:
    urls = []
    for name in ("first", "second"):
        upstream = gitservers.Upstream(tmp_path / name)
        upstream.commit({"agent.json": json.dumps(daemonset(name))})
        urls.append(upstream.path.as_uri())
    urls.append((tmp_path / "third").as_uri())
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        json.dumps({"repositories": [{"url": url, "allowLocal": True} for url in urls]})
    )
    environment = {
        **gitservers.GIT_ENVIRONMENT,
        "GITOPS_DS_CACHE": str(tmp_path / "cache"),
        "KUBECONFIG": str(tmp_path / "none"),
    }
    words = ("doctor", "--settings", settings, "-o", "json")
    done = program.in_this_process(words, tmp_path, environment)
    assert done.code == 1, done.err
    checks = [
        check for check in done.json["checks"] if check["name"] in ("repository", "manifests")
    ]
    assert [(check["name"], check["verdict"]) for check in checks] == [
        ("repository", "ok"),
        ("manifests", "ok"),
        ("repository", "ok"),
        ("manifests", "ok"),
        ("repository", "bad"),
    ]
    assert "third" in checks[4]["message"]
    assert checks[4]["advice"]
