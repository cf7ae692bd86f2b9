"""The pages of docs/moving: their commands are run on objects of kubectl, Helm, Flux and Argo CD,
with the definitions of these tools. Each pod keeps its UID.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core.values import replace
from tests import controlplane, definitions, renderers
from tests.cluster.program import eventually
from tests.docs import pages
from tests.docs.pages import ROOT, Section

pytestmark = [pytest.mark.slow, pytest.mark.controlplane, pytest.mark.renderers]

OWNER = "gitops-ds.io/owner"
AGENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {
        "name": "agent",
        "labels": {"app.kubernetes.io/name": "agent"},
        "annotations": {"example.com/runbook": "https://example.com/agent"},
    },
    "spec": {
        "selector": {"matchLabels": {"app.kubernetes.io/name": "agent"}},
        "template": {
            "metadata": {"labels": {"app.kubernetes.io/name": "agent"}},
            "spec": {
                "serviceAccountName": "agent",
                "containers": [{"name": "agent", "image": "registry.example.com/agent:1"}],
            },
        },
    },
}
ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "agent"}}


@dataclass(frozen=True)
class Move:
    """A namespace of a real cluster whose DaemonSet a tool applied."""

    plane: controlplane.ControlPlane
    namespace: str
    name: str
    directory: Path
    environment: Mapping[str, str]

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.plane.kubectl(*words, stdin=stdin)

    def get(self, *words: str) -> Any:
        printed = self.kubectl(
            "-n", self.namespace, "get", *words, "-o", "json", "--show-managed-fields"
        )
        return json.loads(printed)

    def apply(self, manager: str, *bodies: Mapping[str, Any], server_side: bool = True) -> None:
        """Applies objects as a tool does, under its name."""
        self.kubectl(
            "apply",
            f"--server-side={str(server_side).lower()}",
            f"--field-manager={manager}",
            "-f",
            "-",
            stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies}),
        )

    def in_namespace(self, body: Mapping[str, Any], **metadata: Mapping[str, str]) -> Any:
        """An object of the namespace, with additional labels and annotations."""
        merged = {
            **body["metadata"],
            "namespace": self.namespace,
            **{key: {**body["metadata"].get(key, {}), **more} for key, more in metadata.items()},
        }
        return {**body, "metadata": merged}

    def follow(self, section: Section) -> None:
        """Follows the commands of a section in the user's directory."""
        pages.follow(section, self.directory, self.environment, "console")

    def rolled_out(self) -> None:
        words = ("rollout", "status", f"ds/{self.name}", "--timeout=90s")
        self.kubectl("-n", self.namespace, *words)

    @property
    def running(self) -> tuple[set[str], int, list[str]]:
        """The UIDs of the pods, the generation of the DaemonSet, and its revisions."""
        pods = {pod["metadata"]["uid"] for pod in self.get("pods")["items"]}
        revisions = self.get("controllerrevisions")["items"]
        return (
            pods,
            self.get("daemonset", self.name)["metadata"]["generation"],
            [revision["metadata"]["uid"] for revision in revisions],
        )

    @property
    def managers(self) -> set[str]:
        """The field managers of the DaemonSet, except of its status."""
        fields = self.get("daemonset", self.name)["metadata"]["managedFields"]
        return {entry["manager"] for entry in fields if entry.get("subresource") != "status"}

    def is_ours(self, *marks: str) -> None:
        """Asserts that the DaemonSet has our label and no mark of the tool, and that a field that
        is removed from Git is removed from the cluster, without a restart.
        """
        before, found = self.running, self.get("daemonset", self.name)["metadata"]
        assert found["labels"][OWNER]
        named = {**found["labels"], **found["annotations"]}
        assert [name for name in named if name.startswith(marks)] == []
        assert self.managers - {"kube-controller-manager"} == {"gitops-ds"}
        file = self.directory / "agents" / self.namespace / f"{self.name}.yaml"
        text = file.read_text()
        assert "example.com/runbook" in text
        assert not any(mark in text for mark in marks)
        lines = [line for line in text.splitlines() if "example.com/runbook" not in line]
        file.write_text("\n".join(line for line in lines if line != "  annotations:") + "\n")
        script = "git commit -q -a -m 'No runbook' && gitops-ds apply"
        subprocess.run(
            ["bash", "-c", script], cwd=file.parents[1], env=self.environment, check=True
        )
        assert "example.com/runbook" not in self.get("daemonset", self.name)["metadata"].get(
            "annotations", {}
        )
        assert self.running == before


def section_of(page: str, title: str) -> Section:
    found = {section.title: section for section in pages.sections(ROOT / "docs/moving" / page)}
    return found[title]


def renamed(section: Section, old: str, new: str) -> Section:
    """The section with another namespace: two tests share a page and a cluster."""
    blocks = (
        replace(block, text=re.sub(rf"\b{old}\b", new, block.text)) for block in section.blocks
    )
    return replace(section, blocks=tuple(blocks))


Scene = Callable[[str, str], Move]


@pytest.fixture
def move(
    tmp_path: Path, control_plane: controlplane.ControlPlane, environment: Mapping[str, str]
) -> Iterator[Scene]:
    """Creates the namespace of a page, and removes it afterwards."""
    used: list[str] = []
    programs = (str(controlplane.programs()), str(renderers.programs()))
    variables = {
        **environment,
        "PATH": os.pathsep.join((environment["PATH"], *programs)),
        "KUBECONFIG": str(control_plane.kubeconfig),
        "GITOPS_DS_CACHE": str(tmp_path / "cache"),
    }
    (tmp_path / "desk").mkdir()

    def made(namespace: str, name: str) -> Move:
        control_plane.kubectl("create", "namespace", namespace)
        used.append(namespace)
        return Move(control_plane, namespace, name, tmp_path / "desk", variables)

    yield made
    for namespace in used:
        control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.mark.parametrize(
    "words", [("apply",), ("apply", "--server-side")], ids=["client-side", "server-side"]
)
def test_from_kubectl(move: Scene, words: tuple[str, ...]) -> None:
    name = "node-exporter"
    here = move("node-metrics" if words == ("apply",) else f"metrics-{len(words)}", name)
    agent = here.in_namespace({**AGENT, "metadata": {**AGENT["metadata"], "name": name}})
    items = [here.in_namespace(ACCOUNT), agent]
    here.kubectl(
        *words, "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    )
    here.rolled_out()
    before = here.running
    section = section_of("kubectl.md", "Manifests from the cluster")
    here.follow(renamed(section, "node-metrics", here.namespace))
    assert here.running == before
    here.is_ours("kubectl.kubernetes.io/")


CHART = {
    "Chart.yaml": "apiVersion: v2\nname: fluent-bit\nversion: 1.0.0\nappVersion: 1.0.0\n",
    "values.yaml": "level: info\n",
    "templates/account.yaml": ("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: agent}\n"),
    "templates/daemonset.yaml": """\
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .Release.Name }}
  labels:
    app: {{ .Release.Name }}
    helm.sh/chart: fluent-bit-1.0.0
    app.kubernetes.io/managed-by: {{ .Release.Service }}
  annotations: {example.com/runbook: "https://example.com/agent"}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}, helm.sh/chart: fluent-bit-1.0.0}}
    spec:
      serviceAccountName: agent
      containers:
        - name: agent
          image: "registry.example.com/agent:{{ .Chart.AppVersion }}"
          args: [--level={{ .Values.level }}]
""",
}


def installed(move: Scene, namespace: str, chart: Path) -> Move:
    """A release of a chart, installed by the real helm."""
    here = move(namespace, "fluent-bit")
    for name, text in CHART.items():
        path = chart / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(
        ("helm", "install", "fluent-bit", chart, "-n", namespace, "--set", "level=debug"),
        env=here.environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    here.rolled_out()
    return here


def test_from_helm(move: Scene, tmp_path: Path) -> None:
    here = installed(move, "logging", tmp_path / "chart")
    before = here.running
    assert "helm" in here.managers
    here.follow(section_of("helm.md", "Plain manifests"))
    assert here.running == before
    assert here.get("secrets")["items"] == []
    found = here.get("daemonset", here.name)
    assert "app.kubernetes.io/managed-by" not in found["metadata"]["labels"]
    assert found["spec"]["template"]["metadata"]["labels"]["helm.sh/chart"] == "fluent-bit-1.0.0"
    here.is_ours("meta.helm.sh/")


def test_from_helm_with_the_chart(move: Scene, tmp_path: Path) -> None:
    here = installed(move, "charts", tmp_path / "desk" / "fluent-bit")
    before = here.running
    here.follow(renamed(section_of("helm.md", "Keep the chart"), "logging", here.namespace))
    assert here.running == before
    assert here.get("secrets")["items"] == []
    found = here.get("daemonset", here.name)["metadata"]
    assert found["labels"][OWNER]
    assert not any(name.startswith("meta.helm.sh/") for name in found["annotations"])
    assert here.managers - {"kube-controller-manager"} == {"gitops-ds"}


FLUX_LABELS = {
    "kustomize.toolkit.fluxcd.io/name": "agents",
    "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
}


def flux(here: Move) -> None:
    """A Kustomization with its objects, as kustomize-controller writes them."""
    definitions.define(
        here.plane,
        "kustomize.toolkit.fluxcd.io_kustomizations.yaml",
        "source.toolkit.fluxcd.io_gitrepositories.yaml",
    )
    here.kubectl("create", "namespace", "flux-system")
    here.apply(
        "kubectl",
        {
            "apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "GitRepository",
            "metadata": {"name": "agents", "namespace": "flux-system"},
            "spec": {"interval": "1m", "url": "https://git.example.com/agents.git"},
        },
        {
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization",
            "metadata": {
                "name": "agents",
                "namespace": "flux-system",
                "finalizers": ["finalizers.fluxcd.io"],
            },
            "spec": {
                "interval": "10m",
                "prune": True,
                "path": "./agents",
                "sourceRef": {"kind": "GitRepository", "name": "agents"},
            },
        },
    )
    bodies = [here.in_namespace(one, labels=FLUX_LABELS) for one in (ACCOUNT, AGENT)]
    here.apply("kustomize-controller", *bodies)
    entries = [
        {"id": f"{here.namespace}_agent__ServiceAccount", "v": "v1"},
        {"id": f"{here.namespace}_agent_apps_DaemonSet", "v": "v1"},
    ]
    here.kubectl(
        *("-n", "flux-system", "patch", "kustomization", "agents", "--subresource=status"),
        *(
            "--type",
            "merge",
            "--patch",
            json.dumps({"status": {"inventory": {"entries": entries}}}),
        ),
    )
    here.rolled_out()


@cache
def pruning() -> Path:
    """Flux's pruning, built if it does not exist yet."""
    found = subprocess.run([ROOT / "scripts/health"], stdout=subprocess.PIPE, text=True, check=True)
    return Path(found.stdout.strip()) / "prune"


def pruned(here: Move, *ids: str) -> set[tuple[str, ...]]:
    """Lets Flux's own code prune objects of its Kustomization: each with the result."""
    items = []
    for id in ids:
        kind, _, name = id.partition("/")
        version = "apps/v1" if kind == "DaemonSet" else "v1"
        metadata = {"name": name, "namespace": here.namespace}
        items.append({"apiVersion": version, "kind": kind, "metadata": metadata})
    done = subprocess.run(
        (pruning(), here.plane.kubeconfig, "agents", "flux-system"),
        input=json.dumps({"items": items}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return {tuple(line.split()) for line in done.stdout.splitlines()}


@contextlib.contextmanager
def finalizing(here: Move) -> Iterator[None]:
    """Flux's finalizer: the objects of a deleted Kustomization are pruned unless it is suspended.

    https://github.com/fluxcd/kustomize-controller, finalizerShouldDeleteResources.
    """
    words = ("-n", "flux-system", "get", "kustomization", "agents", "-o", "json")

    def finalize() -> None:
        found = eventually(
            lambda: json.loads(here.kubectl(*words)),
            lambda body: body["metadata"].get("deletionTimestamp"),
            seconds=240,
        )
        if found["spec"]["prune"] and not found["spec"].get("suspend"):
            pruned(here, "DaemonSet/agent", "ServiceAccount/agent")
        patch = json.dumps({"metadata": {"finalizers": None}})
        here.kubectl(*words[:2], "patch", *words[3:5], "--type", "merge", "--patch", patch)

    thread = threading.Thread(target=finalize, daemon=True)
    thread.start()
    yield
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_from_flux(move: Scene) -> None:
    here = move("tracing", "agent")
    flux(here)
    before = here.running
    with finalizing(here):
        here.follow(section_of("flux.md", "A Kustomization of agents"))
    assert here.running == before
    assert here.get("serviceaccount", "agent")["metadata"]["labels"][OWNER]
    # a Kustomization that keeps other objects prunes those that left it
    rest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rest"}}
    here.apply("kustomize-controller", here.in_namespace(rest, labels=FLUX_LABELS))
    found = pruned(here, "DaemonSet/agent", "ServiceAccount/agent", "ConfigMap/rest")
    assert found == {
        (f"DaemonSet/{here.namespace}/agent", "skipped"),
        (f"ServiceAccount/{here.namespace}/agent", "skipped"),
        (f"ConfigMap/{here.namespace}/rest", "deleted"),
    }
    assert here.running == before
    here.is_ours("kustomize.toolkit.fluxcd.io/")


def argo_cd(here: Move, *, server_side: bool) -> None:
    """An Application with its objects, as Argo CD writes them."""
    definitions.define(here.plane, "application-crd.yaml")
    manifest = here.kubectl("create", "namespace", "argocd", "--dry-run=client", "-o", "yaml")
    here.kubectl("apply", "-f", "-", stdin=manifest)
    here.apply(
        "argocd-controller",
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {
                "name": "agents",
                "namespace": "argocd",
                "finalizers": ["resources-finalizer.argocd.argoproj.io"],
            },
            "spec": {
                "project": "default",
                "source": {"repoURL": "https://git.example.com/agents.git", "path": "agents"},
                "destination": {"server": "https://kubernetes.default.svc"},
                "syncPolicy": {"automated": {"prune": True, "selfHeal": True}},
            },
        },
    )
    here.apply(
        "argocd-controller",
        *(
            here.in_namespace(one, annotations={"argocd.argoproj.io/tracking-id": tracking})
            for one, tracking in (
                (ACCOUNT, f"agents:/ServiceAccount:{here.namespace}/agent"),
                (AGENT, f"agents:apps/DaemonSet:{here.namespace}/agent"),
            )
        ),
        server_side=server_side,
    )
    here.rolled_out()


@pytest.mark.parametrize("server_side", [True, False], ids=["server-side", "client-side"])
def test_from_argo_cd(move: Scene, *, server_side: bool) -> None:
    here = move("storage" if server_side else "volumes", "agent")
    argo_cd(here, server_side=server_side)
    before = here.running
    section = section_of("argo-cd.md", "An Application of agents")
    here.follow(renamed(section, "storage", here.namespace))
    assert here.running == before
    here.is_ours("argocd.argoproj.io/", "kubectl.kubernetes.io/")
