"""The real helm and kustomize, for the tests; `scripts/renderers` builds them."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePosixPath

from gitops_ds.core.sources.source_tree import SourceTree

ROOT = Path(__file__).resolve().parents[2]


@cache
def programs() -> Path:
    """The directory with helm and kustomize, built when they are not there yet."""
    done = subprocess.run(
        [ROOT / "scripts/renderers"], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(done.stdout.strip())


def snapshot(files: Mapping[str, str | bytes]) -> SourceTree:
    return SourceTree(
        None,
        {PurePosixPath(n): t if isinstance(t, bytes) else t.encode() for n, t in files.items()},
    )


TEMPLATE = """\
# A comment of the chart's author.
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .Release.Name }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "agent.labels" . | nindent 4 }}
spec:
  selector:
    matchLabels: {app: {{ .Release.Name }}}
  template:
    metadata:
      labels: {app: {{ .Release.Name }}}
    spec:
      priorityClassName: {{ .Values.priority | quote }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: agent
          image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
          args: ["--home=${HOME}"]
          env:
            - name: LEVEL
              value: {{ .Values.level }}
          resources:
            {{- toYaml .Values.resources | nindent 12 }}
"""  # noqa: E501

CHART: Mapping[str, str] = {
    "Chart.yaml": "apiVersion: v2\nname: agent\nversion: 1.2.3\nappVersion: 4.5.6\n",
    "values.yaml": (
        "priority: node-agent\n"
        "level: info\n"
        "image:\n  repository: example.org/agent\n"
        "tolerations:\n  - operator: Exists\n"
        "resources:\n  requests:\n    cpu: 50m\n"
    ),
    "templates/_helpers.tpl": '{{- define "agent.labels" -}}\nteam: platform\n{{- end }}\n',
    "templates/ds.yaml": TEMPLATE,
}


def chart(folder: str = "agents/a/chart", **changed: str) -> dict[str, str | bytes]:
    """The chart's files below the folder; in a keyword `__` is a slash and `_DOT_` a
    dot.
    """
    named = {name.replace("__", "/").replace("_DOT_", "."): text for name, text in changed.items()}
    return {f"{folder}/{name}": text for name, text in {**CHART, **named}.items()}


def repository(
    source: str, files: Mapping[str, str | bytes] | None = None
) -> dict[str, str | bytes]:
    """A repository with one agent, which has that source."""
    settings = "version: v1\nname: fleet\ndefaults: {namespace: node-agents}\n"
    return {
        "gitops-ds.yaml": settings,
        "agents/a/source.yaml": source,
        **(chart() if files is None else files),
    }


def packed(files: Mapping[str, str | bytes], name: str = "agent") -> bytes:
    """The files as `helm package` packs them: below a directory with the chart's name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in files.items():
            data = text if isinstance(text, bytes) else text.encode()
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
