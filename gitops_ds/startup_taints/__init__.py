"""Startup taints: which nodes get work, and for which agents others wait.

`node_waits` and `taint_changes` decide; `startup_taints` watches the nodes and sends the patches.
"""
