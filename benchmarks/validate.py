"""The speed of reading and checking manifests: files per second of CPU, and the ratio to
ruamel.yaml with jsonschema.

python -m benchmarks validate; GITOPS_DS_BENCH_FILES is the number of files.
"""

from __future__ import annotations

import hashlib
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gitops_ds.checks.schema import error_messages, manifests
from gitops_ds.kube.apimachinery import kubernetes_versions
from gitops_ds.yaml import parser

TEMPLATE = """\
# The log agent of team {team}; rolled out by waves.
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: agent-{n}
  namespace: agents-{team}
  labels:
    app.kubernetes.io/name: agent-{n}
    app.kubernetes.io/part-of: node-agents
    app.kubernetes.io/managed-by: gitops-ds
  annotations:
    example.com/owner: "team-{team}"
spec:
  minReadySeconds: 10
  revisionHistoryLimit: 10
  selector:
    matchLabels:
      app.kubernetes.io/name: agent-{n}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 10%
  template:
    metadata:
      labels:
        app.kubernetes.io/name: agent-{n}
        app.kubernetes.io/part-of: node-agents
    spec:
      serviceAccountName: agent-{n}
      priorityClassName: system-node-critical
      terminationGracePeriodSeconds: 30
      nodeSelector:
        kubernetes.io/os: linux
      tolerations:
        - key: node-role.kubernetes.io/control-plane
          operator: Exists
          effect: NoSchedule
        - operator: Exists
          effect: NoExecute
      containers:
        - name: agent
          image: registry.example.com/agents/agent:{n}.2.{team}@sha256:{digest}
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
            runAsNonRoot: true
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
          configMap:
            name: agent-{n}
        - name: varlog
          hostPath:
            path: /var/log
            type: Directory
"""


def write(folder: Path, count: int, bad: int) -> list[Path]:
    """Writes `count` different manifests without findings; one in `bad` has a typo (0: none)."""
    paths = []
    for n in range(count):
        text = TEMPLATE.format(
            n=n,
            digest=hashlib.sha256(b"%d" % n).hexdigest(),
            team=n % 37,
            level=["info", "warn"][n % 2],
            workers=n % 8,
            port=2000 + n % 5000,
            cpu=10 + n % 90,
        )
        if bad and n % bad == 0:
            text = text.replace("operator: Exists", "operator: exists", 1).replace(
                "mountPath: /var/log", "mountpath: /var/log"
            )
        path = folder / f"agent-{n}.yaml"
        path.write_text(text)
        paths.append(path)
    return paths


def ours(paths: list[Path]) -> int:
    """Parses, checks and locates findings; returns their number."""
    result = 0
    for path in paths:
        data = path.read_bytes()
        parsed = parser.read(str(path), data)
        for document in parsed.documents:
            for complaint in manifests.check(document.value, (kubernetes_versions.NEWEST,)):
                parser.place(
                    str(path),
                    data,
                    document.index,
                    complaint.path,
                    key=complaint.on_key,
                )
                result += 1
    return result


def plain(paths: list[Path]) -> int:
    """The simplest implementation: ruamel.yaml's safe loader with its C parser, and jsonschema for
    every document.
    """
    from ruamel.yaml import YAML

    schemas = manifests.schemas_of(kubernetes_versions.NEWEST)
    validator: Any = error_messages.validator(
        schemas.definitions, schemas.kinds["apps/v1/DaemonSet"]
    )
    yaml = YAML(typ="safe", pure=False)
    return sum(len(list(validator.iter_errors(yaml.load(path.read_bytes())))) for path in paths)


def timed(what: str, count: int, work: Any) -> float:
    start = time.process_time()
    found = work()
    took = time.process_time() - start
    sys.stdout.write(
        f"{what:48} {count / took:8,.0f} files a CPU-second   ({count:,} files, {took:.2f} s, "
        f"{found} findings)\n"
    )
    return count / took


def main() -> None:
    count = int(os.environ.get("GITOPS_DS_BENCH_FILES", "10000"))
    with tempfile.TemporaryDirectory() as folder:
        good = write(Path(folder), count, 0)
        ours(good[:50])  # imports and schemas, once
        fast = timed("gitops-ds, all valid", count, lambda: ours(good))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        some = good[: max(1, count // 10)]
        slow = timed("ruamel.yaml (C) and jsonschema, all valid", len(some), lambda: plain(some))
        bad = write(Path(folder), count, 20)
        timed("gitops-ds, one in 20 with two slips, with places", count, lambda: ours(bad))
    sys.stdout.write(
        f"ratio to ruamel.yaml and jsonschema: {fast / slow:.1f}; peak memory {peak:.0f} MiB\n"
    )
