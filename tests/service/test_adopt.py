"""What `adopt` wrote of a real cluster is applied there without a restart, and holds what the pods
need.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path

import pytest

from tests import controlplane
from tests.service.test_service import PROGRAM
from tests.service.test_uninstall import commit_all, program

pytestmark = pytest.mark.controlplane
_numbers = itertools.count()

LIVE = """\
apiVersion: v1
kind: ServiceAccount
metadata: {{name: agent, namespace: {space}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings, namespace: {space}}}
data: {{agent.conf: "level: info"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: of-others, namespace: {space}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: token, namespace: {space}}}
stringData: {{token: geheim}}
---
apiVersion: v1
kind: Service
metadata: {{name: agent, namespace: {space}}}
spec: {{clusterIP: None, selector: {{app: agent}}, ports: [{{port: 9100}}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {space}-agent}}
rules: [{{apiGroups: [""], resources: [nodes], verbs: [get]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {space}-agent}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {space}-agent}}
subjects: [{{kind: ServiceAccount, name: agent, namespace: {space}}}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: agent, namespace: {space}, labels: {{team: platform}}}}
spec:
  selector: {{matchLabels: {{app: agent}}}}
  template:
    metadata: {{labels: {{app: agent}}}}
    spec:
      serviceAccountName: agent
      containers:
        - name: agent
          image: registry.example.com/agent:1
          env: [{{name: TOKEN, valueFrom: {{secretKeyRef: {{name: token, key: token}}}}}}]
          livenessProbe: {{httpGet: {{port: 9100}}}}
      volumes: [{{name: settings, configMap: {{name: settings}}}}]
"""


COMPANIONS = (
    "Namespace",
    "ServiceAccount",
    "ConfigMap",
    "Service",
    "ClusterRole",
    "ClusterRoleBinding",
    "DaemonSet",
)
# Other objects, values of Secrets, and fields and defaults of the API server.
OMITTED = (
    "of-others",
    "geheim",
    "uid",
    "resourceVersion",
    "clusterIPs",
    "terminationGracePeriodSeconds",
    "protocol",
)


def test_running_objects_are_written_with_their_companions_and_applied_without_a_restart(
    tmp_path: Path, control_plane: controlplane.ControlPlane
) -> None:
    plane, space = control_plane, f"adopt-{next(_numbers)}"
    plane.kubectl("create", "namespace", space)
    plane.kubectl("apply", "-f", "-", stdin=LIVE.format(space=space))
    plane.kubectl("-n", space, "rollout", "status", "ds/agent", "--timeout=60s")

    def spec() -> tuple[object, list[str]]:
        body = json.loads(plane.kubectl("-n", space, "get", "daemonset", "agent", "-o", "json"))
        names = plane.kubectl("-n", space, "get", "controllerrevisions,pods", "-o", "name").split()
        return (body["spec"], body["metadata"]["generation"]), names

    before, fleet = spec(), tmp_path / "fleet"
    done = subprocess.run(
        [PROGRAM, "adopt", fleet, "-n", space, "--kubeconfig", plane.kubeconfig],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "reads the Secrets token: they stay in the cluster and are not written" in done.stderr
    written = {
        path.relative_to(fleet).as_posix(): path.read_text() for path in fleet.rglob("*.yaml")
    }
    assert sorted(written) == [f"{space}/agent.yaml", f"{space}/companions.yaml", "cluster.yaml"]
    together = "".join(written.values())
    for kind in COMPANIONS:
        assert f"kind: {kind}\n" in together
    assert "serviceAccountName: agent" in together
    for word in OMITTED:
        assert word not in together, word

    commit_all(fleet, "As it runs")
    applied = program(plane, space, "apply", "-C", fleet, "--wait")
    assert applied.code == 0, applied.err
    assert spec() == before
    again = subprocess.run(
        [PROGRAM, "adopt", tmp_path / "other", "-n", space, "--kubeconfig", plane.kubeconfig],
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 1
    assert "is in Git already" in again.stderr
