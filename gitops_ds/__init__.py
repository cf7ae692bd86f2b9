"""gitops-ds: DaemonSets on every node of every cluster, straight from Git."""

__version__ = "0.1.0"
