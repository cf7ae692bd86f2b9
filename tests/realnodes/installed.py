"""The service as pods of its own image on real nodes, installed from `deploy/`, and a git server
that the pods reach.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests import controlplane
from tests import installation as deploy
from tests.gitservers import HttpServer, SshServer, http_git_server, ssh_git_server
from tests.realnodes import engine
from tests.realnodes.lab import NODES, Cluster, condition, ready_nodes
from tests.realnodes.real_nodes import RealNodes

NAMESPACE: Final = "gitops-ds"
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/gitops-ds"
# The addresses of the git servers for pods, by https and by ssh.
GIT: Final = "10.0.0.2"
SSH: Final = "10.0.0.3"
DISK: Final = 3 << 30  # bytes of a node, at most
SETTINGS: Final = """\
repository:
  url: {url}
  branch: main
  interval: 1s
  credentials: {credentials}
listen:
  address: ":8080"
log:
  format: json
"""
_FOLDER: Final = "/etc/gitops-ds/credentials"
CREDENTIALS: Final = {
    "https": {"username": "bot", "tokenFile": f"{_FOLDER}/token", "caFile": f"{_FOLDER}/ca"},
    "ssh": {"sshKeyFile": f"{_FOLDER}/key", "knownHostsFile": f"{_FOLDER}/known_hosts"},
}
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
    """A cluster into which tests install the service; `git` serves its repository `fleet`, and so
    does `ssh`.
    """

    git: HttpServer
    ssh: SshServer

    @property
    def ssh_url(self) -> str:
        """The address of the repository by ssh."""
        return f"ssh://{getpass.getuser()}@{SSH}:443{self.upstream.path}"

    def overlay(self, power: str = "pace", url: str = "https://git.example.com/fleet") -> Path:
        """A kustomization as users write it, with the repository except under `observe`."""
        credentials = json.dumps(CREDENTIALS[url.partition(":")[0]])
        settings = SETTINGS.format(url=url, credentials=credentials)
        if power == "observe":
            settings = settings[settings.index("listen:") :]
        directory = deploy.overlay(self.directory / "overlay", power, settings)
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
        local = f"[127.0.0.1]:{self.ssh.port}".encode()
        contents = {
            "token": self.git.password.encode(),
            "ca": self.git.authority,
            "key": self.ssh.key,
            "known_hosts": self.ssh.known_hosts.replace(local, f"[{SSH}]:443".encode()),
        }
        for name, content in contents.items():
            (self.directory / name).write_bytes(content)
        files = (f"--from-file={self.directory / name}" for name in contents)
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

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind in the logs of the service."""
        lines = (line[line.index("{") :] for line in self._log_lines() if "{" in line)
        return [one for one in map(json.loads, lines) if one["kind"] == kind]

    def logs(self) -> str:
        """The logs of the service on all nodes."""
        return "\n".join(line for line in self._log_lines() if '"debug"' not in line)

    def _log_lines(self) -> list[str]:
        files = [
            file
            for node in self.nodes.nodes.values()
            for file in sorted(node.data.glob(f"logs/{NAMESPACE}_*/*/*.log"))
        ]
        return [line for file in files for line in (file.parts[-3], *_lines(file))]

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
    with http_git_server(directory / "git") as git, ssh_git_server(directory / "ssh") as ssh:
        servers = {GIT: int(git.url.rpartition(":")[2]), SSH: ssh.port}
        nodes = RealNodes(plane, directory / "nodes", (image(),), servers, DISK)
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
                ssh=ssh,
            )
            lab.until(lambda: ready_nodes(plane) == set(names))
            yield lab
        finally:
            nodes.stop()
            plane.stop()
