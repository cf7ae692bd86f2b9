"""Manifests as in real repositories, from a seeded generator: comments, several documents in a
file, companions of an agent, and findings.

`python -m benchmarks.inputs 2` prints two of them.
"""

from __future__ import annotations

import hashlib
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SEED = 17
TEAMS = ("logging", "monitoring", "network", "security", "storage")
# the number of findings of each agent is chosen from these
MIXED = (0, 0, 1, 1, 1, 2, 3, 5)

NAMESPACES = """\
# The namespaces of all teams. A team is added here first, then in the access rules of the cluster.
"""

NAMESPACE = """\
---
apiVersion: v1
kind: Namespace
metadata:
  name: agents-{team}
  labels:
    team: {team}
    pod-security.kubernetes.io/enforce: privileged  # agents read host paths
"""

ACCOUNT = """\
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {name}
  namespace: agents-{team}
  labels:
    app.kubernetes.io/name: {name}
automountServiceAccountToken: false
"""

SETTINGS = """\
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
  namespace: agents-{team}
  labels:
    app.kubernetes.io/name: {name}
data:
  # read at the start only: a change needs a restart
  agent.yaml: |
    level: {level}
    workers: {workers}
    inputs:
      - path: /var/log/containers/*.log
        parser: cri
      - path: /var/log/syslog
        parser: rfc3164
    output:
      url: https://collector.{team}.example.com:{port}/v1
      batch: {workers}00
      retry: {{first: 1s, longest: 60s}}
"""

DAEMONSET = """\
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {name}
  namespace: agents-{team}
  labels:
    app.kubernetes.io/name: {name}
    app.kubernetes.io/part-of: node-agents
    app.kubernetes.io/managed-by: gitops-ds
    team: {team}
  annotations:
    example.com/owner: "team-{team}"
    example.com/runbook: https://runbooks.example.com/agents/{name}
spec:
  minReadySeconds: 10
  revisionHistoryLimit: 10
  selector:
    matchLabels:
      app.kubernetes.io/name: {name}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 10%
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {name}
        team: {team}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "{port}"
    spec:
      {account}
      priorityClassName: system-node-critical
      terminationGracePeriodSeconds: 30
      nodeSelector:
        kubernetes.io/os: linux
      # Control plane nodes have logs and metrics too.
      tolerations:
        - key: node-role.kubernetes.io/control-plane
          operator: Exists
          effect: NoSchedule
        - key: node.kubernetes.io/network-unavailable
          operator: Exists
          effect: NoSchedule
      containers:
        - name: agent
          # renovate: datasource=docker depName=registry.example.com/agents/{team}
          image: registry.example.com/agents/{team}:{version}@sha256:{digest}
          imagePullPolicy: IfNotPresent
          args: ["--config=/etc/agent/agent.yaml", "--level={level}"]
          env:
            - name: NODE_NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
            - name: WORKERS
              value: "{workers}"
          ports:
            - name: metrics
              containerPort: {port}
              protocol: TCP
          readinessProbe:
            httpGet:
              path: /ready
              port: metrics
            periodSeconds: 10
          livenessProbe:
            httpGet:
              path: /healthz
              port: metrics
            periodSeconds: 30
            failureThreshold: 5
          resources:
            requests:
              cpu: {cpu}m
              memory: 64Mi
            limits:
              memory: 256Mi
          securityContext:
            readOnlyRootFilesystem: true
            allowPrivilegeEscalation: false
            seccompProfile:
              type: RuntimeDefault
            capabilities:
              drop: [ALL]
          volumeMounts:
            - name: config
              mountPath: /etc/agent
            - name: varlog
              mountPath: /var/log
              readOnly: true
      volumes:
        - name: config
          {config}
        - name: varlog
          hostPath:
            path: /var/log
            type: Directory
"""

# The lines that an agent with findings lacks: the first line for one finding, and so on.
LEFT_OUT = (
    "            type: Directory\n",  # DS507, info: hostPath has no type
    "    app.kubernetes.io/part-of: node-agents\n",  # DS015, info: recommended labels are missing
    "  minReadySeconds: 10\n",  # DS208, warning: minReadySeconds is not set
    "      priorityClassName: system-node-critical\n",  # DS312, warning
    "            limits:\n              memory: 256Mi\n",  # DS402, warning: no memory limit
)


def write(
    folder: Path, count: int, *, findings: Sequence[int] = MIXED, seed: int = SEED
) -> list[Path]:
    """`count` files with a DaemonSet each, and one with the namespaces of all. Every second
    DaemonSet has a ServiceAccount in its file, every third one a ConfigMap.

    Each DaemonSet has one of the numbers of `findings` (0 to 5), chosen at random: `(1,)` for one
    finding of severity info each. The output is deterministic.
    """
    chance = random.Random(seed)
    namespaces = folder / "00-namespaces.yaml"
    namespaces.write_text(NAMESPACES + "".join(NAMESPACE.format(team=team) for team in TEAMS))
    paths = [namespaces]
    for n in range(count):
        path = folder / f"agent-{n:05d}.yaml"
        path.write_text(_file(n, chance.choice(findings), chance))
        paths.append(path)
    return paths


def _file(n: int, findings: int, chance: random.Random) -> str:
    """The text of the file of the n-th agent."""
    has_account, has_settings = n % 2 == 0, n % 3 == 0
    name = f"agent-{n:05d}"
    account = f"serviceAccountName: {name}" if has_account else "serviceAccountName: default"
    values = {
        "name": name,
        "team": TEAMS[n % len(TEAMS)],
        "level": chance.choice(["debug", "info", "warn"]),
        "workers": chance.randint(1, 8),
        "port": chance.randint(2000, 9999),
        "cpu": chance.randint(10, 90),
        "version": f"{chance.randint(1, 4)}.{chance.randint(0, 20)}.{chance.randint(0, 9)}",
        "digest": hashlib.sha256(b"%d" % n).hexdigest(),
        "account": account,
        "config": f"configMap: {{name: {name}}}" if has_settings else "emptyDir: {}",
    }
    parts = [ACCOUNT] * has_account + [SETTINGS] * has_settings + [_with(findings)]
    head = f"# Agent {n} of the nodes; see https://runbooks.example.com/agents/{name}\n"
    return head + "".join(part.format(**values) for part in parts)


def _with(findings: int) -> str:
    """The DaemonSet's template with that many findings."""
    text = DAEMONSET
    for line in LEFT_OUT[:findings]:
        text = text.replace(line, "")
    return text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        for path in write(Path(name), int(sys.argv[1])):
            sys.stdout.write(f"# {path.name}\n{path.read_text()}")
