"""Renders a snapshot to the desired manifests of one cluster. Pure: without cluster, clock and
disk.
"""

from gitops_ds.source.render.bundle import agents, clusters, ignored, kustomizations, render
from gitops_ds.yaml.writer import as_yaml

__all__ = ["agents", "as_yaml", "clusters", "ignored", "kustomizations", "render"]
