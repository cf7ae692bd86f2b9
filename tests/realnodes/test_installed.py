"""The service as its users install it: two pods of its image on real nodes, from `deploy/`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Container, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane, renderers
from tests import installation as deploy
from tests.realnodes import engine, faults, installed
from tests.realnodes.faults import Fault
from tests.realnodes.installed import NAMESPACE, Installed
from tests.realnodes.lab import NODES

pytestmark = [
    pytest.mark.realnodes,
    pytest.mark.controlplane,
    pytest.mark.slow,
    pytest.mark.system,
    pytest.mark.xdist_group("installed"),
]
AGENT = Fault("agent", lambda pod: pod["containers"][0].update(image="localhost/agent:2"))
NETWORK = replace(AGENT, base=lambda pod: pod.update(hostNetwork=True))  # the agent is the network
WATCHED = Fault("watched", lambda pod: None)
FAKE = ("fake-1", "fake-2")
CRASHES = Fault("agent", lambda pod: pod["containers"][0].update(args=["--exit-after=0"]))


@pytest.fixture(autouse=True, scope="module")
def _the_image_can_be_built() -> None:
    if reason := engine.problem():
        pytest.skip(reason)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Installed]:
    with installed.cluster(tmp_path) as lab:
        yield lab


def test_two_pods_of_the_image_follow_a_repository_and_leave_the_agents_at_the_end(
    lab: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy.apply(lab.plane, deploy.DEPLOY)
    seconds = {"two pods are ready": lab.until(lambda: len(lab.replicas()) == 2)}
    for pod in lab.replicas().values():
        _is_unprivileged(pod)
    _observe(lab)
    lab.create_credentials()
    lab.upstream.commit(_files(AGENT, changed=False))
    deploy.apply(lab.plane, lab.overlay())
    seconds["the first commit runs"] = lab.until(lambda: _runs(lab, "localhost/agent:1"))
    lab.until(lambda: len(lab.replicas()) == 2)

    # From now on: the pods of the service would be fake on these nodes.
    lab.plane.add_nodes([controlplane.node(name) for name in FAKE])
    lab.upstream.commit(_files(AGENT, changed=True))
    nodes = {*NODES, *FAKE}
    seconds["a push runs on real and fake nodes"] = lab.until(
        lambda: _nodes(lab, "localhost/agent:2") == nodes
    )
    assert lab.are_healthy() or lab.until(lab.are_healthy)

    before = _uids(lab, NODES)
    lab.upstream.commit(_files(CRASHES, changed=True))
    seconds["a bad commit is halted"] = lab.until(lambda: _halt(lab) is not None)
    halt = _halt(lab)
    assert halt is not None
    assert (halt["stage"], "exit code 3" in halt["message"]) == ("canary", True)
    assert before & _uids(lab), "a halted rollout left no node alone"
    lab.upstream.commit(_files(AGENT, changed=True))
    seconds["its revert runs"] = lab.until(
        lambda: _nodes(lab, "localhost/agent:2") == nodes and lab.are_healthy()
    )
    assert len(before & _uids(lab)) >= 1

    agents = _uids(lab)
    lab.plane.kubectl("delete", "-k", str(lab.overlay()))
    assert lab.plane.kubectl("get", "namespaces", NAMESPACE, "--ignore-not-found") == ""
    assert _uids(lab) == agents
    _report(capsys, seconds)


def test_the_other_replica_takes_over_when_the_node_of_the_leader_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the powers full, without the DaemonSet controller of Kubernetes, and by ssh."""
    with installed.cluster(tmp_path, built_in=False) as lab:
        _report(capsys, _take_over(lab))


def _take_over(lab: Installed) -> dict[str, float]:
    lab.upstream.commit(_files(AGENT, changed=False))
    deploy.apply(lab.plane, lab.overlay("full", lab.ssh_url))
    lab.create_credentials()
    lab.until(lambda: len(lab.replicas()) == 2 and _runs(lab, "localhost/agent:1"))
    lab.until(lab.are_healthy)
    first = lab.leader()
    node = next(name for name, pod in lab.replicas().items() if pod["metadata"]["name"] == first)
    lab.nodes.nodes[node].do("power_off")
    lab.upstream.commit(_files(AGENT, changed=True))
    seconds = {"another leader": lab.until(lambda: lab.leader() not in ("", first))}
    others = set(NODES) - {node}
    seconds["the commit runs on the other nodes"] = lab.until(
        lambda: others <= _nodes(lab, "localhost/agent:2")
    )
    seconds["two pods are ready again"] = lab.until(lambda: set(lab.replicas()) == others)
    assert lab.leader() != first
    return seconds


CHART = (
    "https://10.0.0.2/fleet"  # the chart has no host aliases, so the address is that of the server
)


def test_the_chart_is_installed_and_upgraded_during_a_rollout(
    lab: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in lab.nodes.nodes.values():
        node.do(
            "tag_image", "docker.io/library/gitops-ds:0.1.0", "docker.io/library/gitops-ds:next"
        )
    values = lab.directory / "values.yaml"
    values.write_text(json.dumps({"createNamespace": False, "repository": _repository(CHART)}))
    lab.plane.kubectl("create", "namespace", NAMESPACE)
    lab.create_credentials()
    lab.upstream.commit(_files(AGENT, changed=False))
    _helm(lab, "install", "--values", str(values))
    seconds = {"the first commit runs": lab.until(lambda: _runs(lab, "localhost/agent:1"))}
    lab.until(lambda: len(lab.replicas()) == 2 and lab.are_healthy())

    lab.upstream.commit(_files(AGENT, changed=True))
    lab.until(lambda: bool(_nodes(lab, "localhost/agent:2")))
    canary, old = _uids(lab), {pod["metadata"]["uid"] for pod in lab.replicas().values()}
    _helm(lab, "upgrade", "--reuse-values", "--set", "image.tag=next")
    seconds["both pods are replaced, on different nodes"] = lab.until(
        lambda: (
            len(new := {pod["metadata"]["uid"] for pod in lab.replicas().values()}) == 2
            and not new & old
        )
    )
    seconds["the rollout ends"] = lab.until(lambda: _runs(lab, "localhost/agent:2"))
    lab.until(lab.are_healthy)
    assert canary & _uids(lab), "the upgrade updated the canary again"

    agents = _uids(lab)
    lab.plane.kubectl("-n", NAMESPACE, "scale", "deployment", "gitops-ds", "--replicas=0")
    lab.until(lambda: not lab.replicas())
    # Refused until the lease of the last leader has ended, if its pod was killed.
    lab.until(lambda: lab.command("uninstall", "--state-namespace", NAMESPACE, "--yes").code == 0)
    _helm(lab, "uninstall")
    assert _uids(lab) == agents
    _report(capsys, seconds)


@pytest.mark.parametrize(
    ("name", "settings", "pods"),
    [
        ("hostnetwork", 'listen: {address: ":10980"}\n', 2),
        ("edge", "controller: {powers: full, scheduling: direct}\n", 1),
    ],
)
def test_the_overlays_run_on_nodes_without_a_part_of_a_cluster(
    tmp_path: Path, name: str, settings: str, pods: int
) -> None:
    """Hostnetwork without a pod network, edge without a scheduler and a DaemonSet controller."""
    agent = NETWORK if name == "hostnetwork" else AGENT
    names = ("edge-0", "edge-1")
    with installed.cluster(tmp_path, names, built_in=name != "edge") as lab:
        if name == "edge":
            scheduler = lab.plane.processes.pop("scheduler")
            scheduler.kill()
            scheduler.wait()
        else:
            taint = "node.kubernetes.io/network-unavailable=:NoSchedule"
            lab.plane.kubectl("taint", "nodes", "--all", taint)
        lab.plane.kubectl("create", "namespace", NAMESPACE)
        lab.create_credentials()
        deploy.apply(lab.plane, lab.overlay_of(name, settings))
        lab.until(lambda: len(lab.replicas()) == pods)
        lab.upstream.commit(_files(agent, changed=False))
        lab.until(lambda: _nodes(lab, "localhost/agent:1") == set(names) and lab.are_healthy())
        lab.upstream.commit(_files(agent, changed=True))
        lab.until(lambda: _nodes(lab, "localhost/agent:2") == set(names) and lab.are_healthy())


def _observe(lab: Installed) -> None:
    """The service reports that it would have created the same pods, also in place of a deleted one,
    and writes nothing.
    """
    deploy.apply(lab.plane, lab.overlay("observe"))
    lab.until(
        lambda: (
            len(pods := lab.replicas()) == 2
            and all("--powers=observe" in json.dumps(pod["spec"]) for pod in pods.values())
            and lab.leader() in {pod["metadata"]["name"] for pod in pods.values()}
        )
    )
    body = faults.manifest(WATCHED, changed=False)
    lab.plane.kubectl("create", "-f", "-", stdin=json.dumps(body))
    lab.until(lambda: {pod["status"]["phase"] for pod in lab.pods()} == {"Running"})
    lab.plane.kubectl("delete", "pod", lab.pods()[0]["metadata"]["name"], "--wait=false")
    lab.until(lambda: any(event["elsewhere"] for event in lab.events("Compared")))
    for event in lab.events("Compared"):
        assert (event["object"], event["differences"]) == ("DaemonSet default/watched", 0)
        assert event["created"] >= 1
    kinds = ("daemonsets,pods,controllerrevisions", "--show-managed-fields", "-o", "json")
    for body in json.loads(lab.plane.kubectl("-n", "default", "get", *kinds))["items"]:
        managers = {entry["manager"] for entry in body["metadata"]["managedFields"]}
        assert managers <= {"kubectl-create", "kube-controller-manager", "kubelet"}, body


def _repository(url: str) -> dict[str, Any]:
    credentials = installed.CREDENTIALS["https"]
    return {"url": url, "branch": "main", "interval": "1s", "credentials": credentials}


def _helm(lab: Installed, command: str, *options: str) -> None:
    chart = () if command == "uninstall" else (str(deploy.CHART),)
    subprocess.run(
        [renderers.programs() / "helm", command, "gitops-ds", *chart, *options, "-n", NAMESPACE],
        env={"HOME": str(lab.directory), "KUBECONFIG": str(lab.plane.kubeconfig)},
        check=True,
    )


def _files(fault: Fault, *, changed: bool) -> dict[str, str | bytes | None]:
    return {
        f"agents/{fault.name}/daemonset.json": json.dumps(
            faults.manifest(fault, changed=changed), indent=1
        ),
        f"agents/{fault.name}/rollout.yaml": faults.policy(),
    }


def _nodes(lab: Installed, image: str) -> set[str]:
    """The nodes that run the agent with an image."""
    return {
        str(pod["spec"]["nodeName"])
        for pod in lab.pods("agent")
        if pod["spec"]["containers"][0]["image"] == image and pod["status"]["phase"] == "Running"
    }


def _runs(lab: Installed, image: str) -> bool:
    return _nodes(lab, image) == set(NODES)


def _uids(lab: Installed, nodes: Container[str] = (*NODES, *FAKE)) -> set[str]:
    pods = (pod for pod in lab.pods("agent") if pod["spec"].get("nodeName") in nodes)
    return {str(pod["metadata"]["uid"]) for pod in pods}


def _halt(lab: Installed) -> dict[str, Any] | None:
    rollout = lab.agents()["agent"]["rollout"]
    return (rollout or {}).get("halt")


def _is_unprivileged(pod: dict[str, Any]) -> None:
    """Fails unless the kernel and the API server report a process without privileges."""
    process = _process(pod["metadata"]["name"])
    lines = (process / "status").read_text().splitlines()
    status = dict(line.replace("\t", " ").split(":", 1) for line in lines)
    shown = {name: status[name].strip() for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")}
    assert shown == {"CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
    assert set(status["Uid"].split()) == {"65532"}
    root = next(
        line.split()
        for line in (process / "mountinfo").read_text().splitlines()
        if line.split()[4] == "/"
    )
    assert "ro" in root[5].split(",")
    assert pod["spec"]["priority"] == 2_000_000_000
    assert pod["spec"]["serviceAccountName"] == "gitops-ds"


def _process(pod: str) -> Path:
    """The process of the service in a pod."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if f"HOSTNAME={pod}".encode() in environment and b"--settings=" in command:
            return process
    raise AssertionError(f"{pod} has no process")


def _report(capsys: pytest.CaptureFixture[str], seconds: dict[str, float]) -> None:
    with capsys.disabled():
        print("\n" + "\n".join(f"{name}: {value:.1f} s" for name, value in seconds.items()))
