"""The service as pods of its own image on real nodes, installed from `deploy/`, and a git server
that the pods reach.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests import controlplane, deploy
from tests.gitservers import HttpServer, http_git_server
from tests.realnodes import engine
from tests.realnodes.lab import NODES, Cluster, condition, ready_nodes
from tests.realnodes.real_nodes import RealNodes

NAMESPACE: Final = "gitops-ds"
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/gitops-ds"
GIT: Final = "10.0.0.2"  # the address of the git server for pods
DISK: Final = 3 << 30  # bytes of a node, at most
SETTINGS: Final = """\
repository:
  url: {url}
  branch: main
  interval: 1s
  credentials:
    username: bot
    tokenFile: /etc/gitops-ds/credentials/token
    caFile: /etc/gitops-ds/credentials/ca
listen:
  address: ":8080"
log:
  format: json
"""
# Nodes have no DNS.
HOST: Final = f"""\
patches:
  - target: {{kind: Deployment, name: gitops-ds}}
    patch: |-
      - op: add
        path: /spec/template/spec/hostAliases
        value: [{{ip: {GIT}, hostnames: [git.example.com]}}]
"""


@dataclass(kw_only=True)
class Installed(Cluster):
    """A cluster into which tests install the service; `git` serves its repository `fleet`."""

    git: HttpServer

    def overlay(self, power: str = "pace", url: str = "https://git.example.com/fleet") -> Path:
        """A kustomization as users write it, with the repository."""
        directory = deploy.overlay(self.directory / "overlay", power, SETTINGS.format(url=url))
        with (directory / "kustomization.yaml").open("a") as file:
            file.write(HOST)
        return directory

    def overlay_of(self, name: str, more: str) -> Path:
        """The same with an overlay of `deploy/`; `more` replaces the settings after the
        repository.
        """
        directory = self.overlay()
        there = os.path.relpath(deploy.DEPLOY / "overlays" / name, directory.resolve())
        file = directory / "kustomization.yaml"
        generator = file.read_text().partition("configMapGenerator:")[2]
        file.write_text(f"resources: [{there}]\nconfigMapGenerator:{generator}")
        settings = directory / "settings.yaml"
        settings.write_text(settings.read_text().partition("listen:")[0] + more)
        return directory

    def create_credentials(self) -> None:
        """The Secret `credentials` of the documentation."""
        (self.directory / "token").write_text(self.git.password)
        (self.directory / "ca").write_bytes(self.git.authority)
        files = (f"--from-file={self.directory / name}" for name in ("token", "ca"))
        self.plane.kubectl("-n", NAMESPACE, "create", "secret", "generic", "credentials", *files)

    def replicas(self) -> dict[str, Any]:
        """The pods of the service that are ready, by their node."""
        query = {"labelSelector": "app.kubernetes.io/name=gitops-ds"}
        pods = self.plane.items(NAMESPACE, "pods", **query)
        return {
            str(pod["spec"]["nodeName"]): pod
            for pod in pods
            if condition(pod, "Ready") == "True" and "deletionTimestamp" not in pod["metadata"]
        }

    def leader(self) -> str:
        """The name of the pod that holds the lease."""
        holder = self.plane.request("GET", LEASE)["spec"].get("holderIdentity", "")
        return str(holder).partition("_")[0]

    def logs(self) -> str:
        """The logs of the service on all nodes."""
        files = [
            file
            for node in self.nodes.nodes.values()
            for file in sorted(node.data.glob(f"logs/{NAMESPACE}_*/*/*.log"))
        ]
        lines = [line for file in files for line in (file.parts[-3], *_lines(file))]
        return "\n".join(line for line in lines if '"debug"' not in line)

    def tail(self) -> str:
        pods = self.plane.kubectl("-n", NAMESPACE, "get", "pods,events,deployments", "-o", "wide")
        return f"{pods}\n{self.logs()[-12000:]}"


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


@cache
def image() -> Path:
    """The archive of the image, built if missing."""
    return engine.archive("service")


@contextlib.contextmanager
def cluster(
    directory: Path, names: tuple[str, ...] = NODES, *, built_in: bool = True
) -> Iterator[Installed]:
    """Real nodes that have the image, without the service."""
    wanted = controlplane.Wanted(real_nodes=True, daemonset_controller=built_in)
    plane = controlplane.ControlPlane(directory / "plane", wanted)
    with http_git_server(directory / "git") as git:
        port = int(git.url.rpartition(":")[2])
        nodes = RealNodes(plane, directory / "nodes", (image(),), {GIT: port}, DISK)
        upstream = git.repository("fleet")
        upstream.commit({"gitops-ds.yaml": "version: v1\nname: real\n"})
        try:
            plane.start()
            nodes.start(*names)
            lab = Installed(
                directory=directory,
                plane=plane,
                nodes=nodes,
                upstream=upstream,
                namespace=NAMESPACE,
                git=git,
            )
            lab.until(lambda: ready_nodes(plane) == set(names))
            yield lab
        finally:
            nodes.stop()
            plane.stop()
