"""Where commits come from, and where reverts go: the only package that starts processes (git,
kustomize).
"""
