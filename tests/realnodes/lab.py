"""A laboratory: a control plane with real nodes, a repository, and the installed service."""

from __future__ import annotations

import contextlib
import html
import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane
from tests.cluster import program
from tests.cluster.program import Ended
from tests.gitservers import Upstream
from tests.realnodes.real_nodes import RealNodes
from tests.service.test_service import running

# Of modules whose tests have a laboratory; few run at once.
MARKS = [
    pytest.mark.realnodes,
    pytest.mark.controlplane,
    pytest.mark.slow,
    pytest.mark.system,
    pytest.mark.xdist_group("realnodes"),
]
NODES = ("real-1", "real-2", "real-3")
PATIENCE = 400.0  # seconds, on a busy machine


@dataclass(kw_only=True)
class Cluster:
    """A cluster with real nodes and its repository; `namespace` is that of the service."""

    directory: Path
    plane: controlplane.ControlPlane
    nodes: RealNodes
    upstream: Upstream
    namespace: str

    def command(self, *words: str) -> Ended:
        """A command of a user, in this process."""
        variables = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.directory),
            "KUBECONFIG": str(self.plane.kubeconfig),
            "GITOPS_DS_CACHE": str(self.directory / "commands"),
        }
        return program.in_this_process(words, self.directory, variables)

    def agents(self) -> dict[str, Any]:
        """Each DaemonSet by its name, as `get -o json` shows it."""
        items = self.command("get", "-o", "json", "--state-namespace", self.namespace).json
        return {item["name"]: item for item in items["items"]}

    def pods(self, agent: str = "") -> list[Any]:
        """The pods that are not ending, of one agent or of all."""
        query = {"labelSelector": f"app={agent}"} if agent else {}
        items = self.plane.items("default", "pods", **query)
        return [item for item in items if "deletionTimestamp" not in item["metadata"]]

    def until(self, holds: Callable[[], bool], seconds: float = PATIENCE) -> float:
        """The seconds until a condition is true. Fails with the state after a time."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > seconds:
                state = self.plane.kubectl("get", "nodes,pods", "-o", "wide")
                raise AssertionError(f"{self.command('get').out}\n{state}\n{self.tail()}")
            time.sleep(0.5)
        return time.monotonic() - began

    def tail(self) -> str:
        """The end of the log of the service."""
        return ""

    def are_healthy(self) -> bool:
        """Whether every DaemonSet is healthy, without a rollout in progress."""
        agents = self.agents().values()
        return bool(agents) and all(
            agent["health"]["state"] == "Healthy" and not agent["rollout"] for agent in agents
        )


@dataclass(kw_only=True)
class Lab(Cluster):
    """With a service that is a process of this machine; `log` is its log, `page` the address of its
    page.
    """

    service: subprocess.Popen[bytes]
    log: Path
    page: str

    def until(self, holds: Callable[[], bool], seconds: float = PATIENCE) -> float:
        def holds_while_running() -> bool:
            assert self.service.poll() is None, self.tail()
            return holds()

        return super().until(holds_while_running, seconds)

    def tail(self) -> str:
        return self.log.read_text()[-6000:]

    def shown(self, agent: str) -> str:
        """The text of the page of an agent."""
        with urllib.request.urlopen(f"{self.page}/agents/default/{agent}", timeout=60) as answer:
            return html.unescape(answer.read().decode())


@dataclass(kw_only=True)
class Start:
    """What a laboratory starts with: its nodes, the files of the repository, additional settings of
    the service, and an additional configuration of kubelets.
    """

    nodes: tuple[str, ...] = NODES
    files: dict[str, str | bytes | None] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    kubelet: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def laboratory(directory: Path, powers: str, start: Start | None = None) -> Iterator[Lab]:
    """A laboratory with a service that follows a repository without agents. Under `full` the
    service is the only DaemonSet controller.
    """
    start = start or Start()
    wanted = controlplane.Wanted(real_nodes=True, daemonset_controller=powers != "full")
    plane = controlplane.ControlPlane(directory / "plane", wanted)
    nodes = RealNodes(plane, directory / "nodes", kubelet=start.kubelet)
    upstream = Upstream(directory / "fleet")
    files = {"gitops-ds.yaml": "version: v1\nname: real\n", "clusters/test.yaml": "{}\n"}
    upstream.commit({**files, **start.files})
    address = f"127.0.0.1:{controlplane.free_port()}"
    local = {"url": str(upstream.path), "allowLocal": True, "interval": "1s"}
    settings = {"listen": {"address": address}, **start.settings}
    settings["repository"] = local | start.settings.get("repository", {})
    (directory / "settings.yaml").write_text(json.dumps(settings))
    options = ("--settings", str(directory / "settings.yaml"), "--powers", powers)
    try:
        plane.start()
        nodes.start(*start.nodes)
        with running(directory, plane, *options) as (service, log):
            lab = Lab(
                directory=directory,
                plane=plane,
                nodes=nodes,
                upstream=upstream,
                namespace="service-test",
                service=service,
                log=log,
                page=f"http://{address}",
            )
            lab.until(lambda: ready_nodes(plane) == set(start.nodes))
            yield lab
            assert service.poll() is None
            assert "Traceback" not in log.read_text()
    finally:
        nodes.stop()
        plane.stop()


def ready_nodes(plane: controlplane.ControlPlane) -> set[str]:
    """The names of the nodes that are ready."""
    return {
        str(one["metadata"]["name"])
        for one in plane.request("GET", "/api/v1/nodes")["items"]
        if condition(one, "Ready") == "True"
    }


def condition(body: Any, name: str) -> str:
    """The status of a condition of a node or pod, empty without it."""
    conditions = body.get("status", {}).get("conditions", ())
    return next((str(one["status"]) for one in conditions if one["type"] == name), "")
