"""The waves of a commit over the clusters: their order, and whether a commit may continue."""
