"""A small agent, as YAML that passes every check."""

from __future__ import annotations


def agent(
    name: str = "agent",
    *,
    label: str = "",
    namespace: str = "default",
    image: str = "registry.example/agent:1.0.0",
) -> str:
    """The DaemonSet; its selector does not match a `label` other than its name."""
    return f"""\
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {label or name}}}}}
    spec:
      containers: [{{name: {name}, image: "{image}"}}]
"""
