"""Renders a snapshot to the desired manifests of one cluster. Pure: the cluster, the clock and the
disk stay outside.
"""

from gitops_ds.render.bundle import agents, clusters, ignored, kustomizations, render
from gitops_ds.yaml.writer import as_yaml

__all__ = ["agents", "as_yaml", "clusters", "ignored", "kustomizations", "render"]
