"""A support dump can be published: it has no secret, names what could not be read, and is small."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.cli.support_dump import archive, collect
from gitops_ds.cli.support_dump.archive import Dump, DumpLimits
from gitops_ds.core import errors
from gitops_ds.core.deployer_state import DeployerState, KnownDrift
from gitops_ds.core.objects import (
    CONFIG_MAP,
    DAEMONSET,
    EVENT,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    SECRET,
    Body,
    Key,
    Resource,
)
from gitops_ds.core.redaction.patterns import HIDDEN
from gitops_ds.core.redaction.support_dump import Redactor
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.deploy import state_store
from gitops_ds.kube.apimachinery import nodes, pods
from gitops_ds.testing import simulator
from tests import controlplane, gitservers
from tests.cluster import program
from tests.cluster.program import Ended
from tests.plan.world import daemonset
from tests.simulator.setup import daemonset as controller_daemonset
from tests.simulator.setup import set_up

AGENT = Key("apps", "DaemonSet", "logging", "agent")
PLANTED = "xq7"  # every secret of the scene has it, and nothing else does


class Plants:
    """Makes secrets, each another one."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, where: str) -> str:
        self.made.append(f"{where}{PLANTED}{len(self.made)}")
        return self.made[-1]


def agent(plant: Plants) -> dict[str, Any]:
    body = daemonset(AGENT.name, namespace=AGENT.namespace)
    variables = [
        {"name": "DB_PASSWORD", "value": plant("quoted")},
        {"name": "API_KEY", "value": plant("key")},
        {"name": "UPSTREAM", "value": f"https://shipper:{plant('login')}@logs.example.com/"},
        {
            "name": "PLAIN",
            "value": f"9f86d081884c7d659a{PLANTED}a0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        },
        {"name": "SEALED", "valueFrom": {"secretKeyRef": {"name": "sealed", "key": "token"}}},
    ]
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["env"] = variables
    container["args"] = [
        f"--token={plant('flag')}",
        "--api-key",
        plant("next"),
        "--log-level",
        "info",
    ]
    container["args"] += ["--notify", f"https://hooks.slack.com/services/T0/{plant('hook')}"]
    container["command"] = [
        "sh",
        "-c",
        f"export PASSWD={plant('shell')}; curl -H 'Authorization: Bearer {plant('bearer')}' $URL",
    ]
    body["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"odd": plant("applied")}),
        "example.com/token": plant("annotation"),
        "example.com/source": f"https://{plant('user')}@git.example.com/x",
        "example.com/settings": f"user: me\npassword: {plant('yaml')}\n",
    }
    return body


def settings(plant: Plants) -> str:
    return f"""\
repository:
  url: https://bot:{plant("git")}@git.example.com/fleet.git
  branch: main
  credentials: {{tokenFile: /etc/gitops-ds/credentials/token}}
notify:
  - {{name: room, format: slack, url: "https://chat.example.com/{plant("room")}"}}
  - {{name: other, url: "https://hooks.slack.com/services/{plant("slack")}"}}
"""


def remembered(plant: Plants) -> DeployerState:
    return DeployerState(
        repository=f"https://bot:{plant('state')}@git.example.com/fleet.git",
        inventory=frozenset([AGENT]),
        drift={
            AGENT: KnownDrift(DriftPolicy.REPORT, 1.0, f'env: {{"secret": "{plant("drift")}"}}')
        },
    )


def body_of(
    resource: Resource, name: str, space: str = "gitops-ds", /, **more: Any
) -> tuple[Resource, Body]:
    """An object; `labels` and `annotations` are parts of its metadata."""
    parts = {one: more.pop(one) for one in ("labels", "annotations") if one in more}
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return resource, {**head, "metadata": {"namespace": space, "name": name, **parts}, **more}


def objects(plant: Plants) -> Iterator[tuple[Resource, Body]]:
    yield DAEMONSET, agent(plant)
    yield body_of(SECRET, "sealed", "logging", stringData={"token": plant("sealed")})
    yield body_of(CONFIG_MAP, "settings", data={"settings.yaml": settings(plant)})
    yield body_of(CONFIG_MAP, "other", data={"anything": plant("foreign")})
    managed = {"app.kubernetes.io/managed-by": "gitops-ds"}
    message = f"--password {plant('status')} was refused"
    status = {"status.json": json.dumps({"health": "Failed", "message": message})}
    yield body_of(CONFIG_MAP, "status", labels=managed, data=status)
    about = {"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": "logging", "name": "agent"}
    for number, message in enumerate(
        (f"the program printed {plant.made[0]}", f"https://x:{plant('event')}@h/ can't be pulled")
    ):
        at = {"lastTimestamp": f"2026-01-0{number + 1}T00:00:00Z"}
        name = f"event-{number}"
        yield body_of(EVENT, name, "logging", involvedObject=about, message=message, **at)
    spec = {"holderIdentity": "pod-1", "leaseDurationSeconds": 10}
    notes = {"example.com/cookie": plant("cookie")}
    yield body_of(LEASE, "gitops-ds", annotations=notes, spec=spec)


def service_pod() -> tuple[Resource, Body]:
    ports = [{"name": "http", "containerPort": 8081}]
    container = {"name": "gitops-ds", "image": "gitops-ds:1", "ports": ports}
    labels = {"app.kubernetes.io/name": "gitops-ds"}
    spec = {"containers": [container], "nodeName": "node-0"}
    return body_of(POD, "gitops-ds-0", labels=labels, spec=spec)


def opened(data: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {
            entry.name.removeprefix(f"{archive.ROOT}/"): file.read().decode()
            for entry in tar.getmembers()
            if (file := tar.extractfile(entry)) is not None
        }


def played(tmp_path: Path, plant: Plants, limits: DumpLimits) -> tuple[dict[str, str], list[str]]:
    """The archive of a cluster that is full of secrets, and the paths that were read raw."""
    file = tmp_path / "settings.yaml"
    file.write_text(settings(plant))
    requests: list[str] = []

    async def raw(path: str, query: Mapping[str, str], most: int) -> str:
        requests.append(path)
        assert most == limits.log
        if path.endswith("/metrics"):
            return f'up{{token="{plant("metric")}"}} 1\n'
        line = json.dumps(
            {
                "message": f"error {plant.made[0]}",
                "token": plant("log"),
                "header": f"Basic {plant('basic')}",
            }
        )
        return (
            f"2026-01-01T00:00:00Z {line}\n-----BEGIN RSA PRIVATE "
            f"KEY-----\n{plant('pem')}\n-----END RSA PRIVATE KEY-----\n"
        )

    async def scene() -> bytes:
        async with simulator.SimulatedCluster() as cluster:
            cluster.add_nodes(simulator.NodeSpec(f"node-{i}") for i in range(2))
            client = cluster.client()
            for name in ("gitops-ds", "logging"):
                await client.create(
                    NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                )
            for resource, body in (*objects(plant), service_pod()):
                await client.create(resource, body)
            await state_store.save(client, "gitops-ds", "fleet", remembered(plant))
            dump = await collect.local(str(file))
            await collect.cluster(dump, client, "gitops-ds", (raw, limits))
            words = f"refused: token={plant('complaint')}"
            await dump.read("something", failing(words))
            return archive.archive(dump, limits, 0.0)

    return opened(simulator.virtual_time.run(scene())), requests


async def failing(words: str) -> archive.Parts:
    raise errors.Forbidden(words)


def test_no_planted_secret_is_in_the_archive_and_all_the_rest_is(tmp_path: Path) -> None:
    plant = Plants()
    files, requests = played(tmp_path, plant, DumpLimits())
    assert len(plant.made) >= 25
    assert {
        secret: name for secret in plant.made for name, text in files.items() if secret in text
    } == {}
    assert [name for name, text in files.items() if PLANTED in text] == []
    documents = {name: json.loads(text) for name, text in files.items() if name.endswith(".json")}
    assert documents["versions.json"]["gitops-ds"]
    assert documents["settings.json"]["repository"]["credentials"] == {
        "tokenFile": "/etc/gitops-ds/credentials/token"
    }
    assert (
        documents["settings-settings.json"]["notify"][0]["url"]
        == f"https://chat.example.com/{HIDDEN}"
    )
    assert documents["state/fleet.json"]["inventory"] == [["apps", "DaemonSet", "logging", "agent"]]
    (daemon,) = documents["daemonsets.json"]["items"]
    container = daemon["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][3:6] == ["--log-level", "info", "--notify"]
    assert container["env"][4]["valueFrom"]["secretKeyRef"] == {"name": "sealed", "key": "token"}
    assert len(documents["nodes.json"]["items"]) == 2
    assert [event["metadata"]["name"] for event in documents["events.json"]["items"]][:2] == [
        "event-1",
        "event-0",
    ]
    assert f"the program printed {HIDDEN}" in files["events.json"]
    assert documents["leases.json"]["items"][0]["spec"]["holderIdentity"] == "pod-1"
    assert {
        "controllerrevisions.json",
        "pods.json",
        "configmaps.json",
        "kubernetes.json",
        "README.txt",
    } <= files.keys()
    assert f"something: refused: token={HIDDEN}" in files["README.txt"]
    pod = "/api/v1/namespaces/gitops-ds/pods/gitops-ds-0"
    assert requests == [f"{pod}/log", f"{pod}:8081/proxy/metrics"]
    assert files["logs/gitops-ds-0.gitops-ds.log"].startswith("2026-01-01T00:00:00Z ")


async def test_the_dump_has_what_the_controller_decides_from() -> None:
    async with set_up(3, controller_daemonset(minReadySeconds=30)) as there:
        there.begin()
        await asyncio.sleep(20)
        await there.edit("agent:2")
        await there.people.patch(NODE, "", "node-1", {"spec": {"unschedulable": True}})
        await asyncio.sleep(3)
        dump = Dump()
        await collect.cluster(dump, there.people, "gitops-ds", None)
        for resource, file, parsed in (
            (POD, "pods.json", pods.pod_of),
            (NODE, "nodes.json", nodes.node_of),
        ):
            live = (await there.people.list(resource)).items
            assert len(live) >= 3
            assert [parsed(one) for one in dump.parts[file]] == [parsed(one) for one in live]


def test_large_parts_are_truncated_and_named(tmp_path: Path) -> None:
    files, _ = played(tmp_path, Plants(), DumpLimits(file=600, log=100))
    assert json.loads(files["events.json"])["items"][0]["metadata"]["name"] == "event-1"
    assert "events.json: 1 of" in files["README.txt"]
    assert all(len(text) < 700 for name, text in files.items() if name != "README.txt")
    whole, _ = played(tmp_path, Plants(), DumpLimits(whole=2000))
    assert sum(map(len, whole.values())) < 2000 + len(whole["README.txt"])
    assert "omitted, the archive would exceed" in whole["README.txt"]


@pytest.mark.parametrize(
    "text",
    [
        "rollout secret: nothing is there",
        "automountServiceAccountToken: false",
        "tokenFile: /etc/token",
        "couldn't find key token in Secret logging/sealed",
        "ssh://git@git.example.com/fleet.git",
        "--token-file /etc/token --v 4",
        (
            "image "
            "registry.example.com/agent@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        ),
    ],
)
def test_what_only_mentions_a_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text
    assert Redactor().document({"message": text}) == {"message": text}


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("--token abcd", f"--token {HIDDEN}"),
        ("a=1&access_token=zzzz&b=2", f"a=1&access_token={HIDDEN}&b=2"),
        ("https://tokenofmine@h/x", f"https://{HIDDEN}@h/x"),
        ('say {\\"token\\":\\"abcd\\"}', f'say {{\\"token\\":\\"{HIDDEN}\\"}}'),
        ("  password: hello world\n b: c", f"  password: {HIDDEN}\n b: c"),
        ("export DB_PASS=hunter22; run", f"export DB_PASS={HIDDEN}; run"),
    ],
)
def test_the_value_of_a_name_of_a_secret_is_hidden(text: str, redacted: str) -> None:
    assert Redactor().text(text) == redacted


def test_last_words_of_a_container_are_its_own() -> None:
    body = {
        "state": {
            "terminated": {
                "reason": "Error",
                "exitCode": 1,
                "message": "connecting as root/hunter2",
            }
        }
    }
    assert Redactor().document(body) == {
        "state": {"terminated": {"reason": "Error", "exitCode": 1, "message": HIDDEN}}
    }


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)


@given(
    secret=st.from_regex(r"\A[!-~]{8,40}\Z").filter(
        lambda text: HIDDEN not in text and not text.startswith("$")
    ),
    before=WORDS,
    after=WORDS,
)
def test_a_value_that_one_place_reveals_is_hidden_in_all(
    secret: str, before: str, after: str
) -> None:
    redactor = Redactor()
    variable = {"name": "DB_PASSWORD", "value": secret}
    redactor.learn({"env": [variable]})
    quoted = f"{before}{secret}{after}"
    elsewhere = {
        "message": quoted,
        secret: [f"{{{secret}}}"],
        "line": f"{before}\n{secret}\n{after}",
    }
    document = redactor.document({"env": [variable], "rest": elsewhere})
    for text in (*leaves(document), redactor.text(quoted)):
        assert secret not in text.replace(HIDDEN, "\0")


def leaves(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for key, below in value.items():
                yield key
                yield from leaves(below)
        case list():
            for below in value:
                yield from leaves(below)
        case _:
            yield str(value)


def test_settings_that_are_not_yaml_are_named_and_omitted(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("repository: {url: 'xyzzy\n")
    dump: Dump = simulator.virtual_time.run(collect.local(str(file)))
    assert "settings.json" not in dump.parts
    assert "settings.yaml" in dump.missing[0]


def dumped(directory: Path, *words: str) -> Ended:
    return program.in_this_process(("support-dump", *words), directory, gitservers.GIT_ENVIRONMENT)


def test_without_a_cluster_the_rest_is_written_and_nothing_overwritten(tmp_path: Path) -> None:
    done = dumped(tmp_path, "--file", "dump.tar.gz", "--kubeconfig", "nowhere")
    assert done.code == 0, done.err
    assert "not read: cluster: " in done.err
    file = tmp_path / "dump.tar.gz"
    assert file.stat().st_mode & 0o777 == 0o600
    assert {"README.txt", "versions.json"} == opened(file.read_bytes()).keys()
    before = file.read_bytes()
    again = dumped(tmp_path, "--file", "dump.tar.gz", "--kubeconfig", "nowhere")
    assert (again.code, file.read_bytes()) == (2, before)
    assert "nothing is overwritten" in again.err


@pytest.mark.controlplane
def test_on_a_real_cluster_forbidden_requests_are_named(
    tmp_path: Path, control_plane: controlplane.ControlPlane
) -> None:
    role = ("--verb=get,list", "--resource=daemonsets.apps,nodes,configmaps")
    control_plane.kubectl("create", "clusterrole", "dumper", *role)
    restricted = program.account(
        control_plane, "default", "dumper", "dumper", tmp_path / "kubeconfig"
    )
    few = dumped(tmp_path, "--file", "few.tar.gz", "--kubeconfig", str(restricted), "-o", "json")
    assert few.code == 0, few.err
    report = few.json
    assert {"daemonsets.json", "nodes.json"} <= set(report["parts"])
    assert any(line.startswith("pods: ") and "forbidden" in line for line in report["unread"])
    there = ("--kubeconfig", str(control_plane.kubeconfig))
    whole = dumped(tmp_path, "--file", "all.tar.gz", *there, "-o", "json")
    assert whole.code == 0, whole.err
    wanted = {"pods.json", "leases.json", "events.json", "controllerrevisions.json"}
    assert wanted <= set(whole.json["parts"])
    assert [line.partition(":")[0] for line in whole.json["unread"]] == ["logs and metrics"]


def test_the_versions_are_of_every_library_that_the_program_needs() -> None:
    wanted = {"aiohttp", "jinja2", "prometheus-client", "rich", "uvloop", "kubernetes"}
    assert wanted <= set(collect._libraries())
    assert "pydantic" not in collect._libraries()
    assert "ruff" not in collect._libraries()
