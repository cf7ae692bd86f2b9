"""The rules of Kubernetes that the features need, without requests: labels, quantities, defaults,
eligibility of nodes, revisions.

Each module names the upstream file or page that it follows.
"""
