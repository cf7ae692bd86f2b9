"""The loop from Git to the cluster.

`loop_state` decides when a reconciliation runs, `revision_selector` which commit it applies,
`pipeline` renders and checks it in a process with limits, `plan` compares it with the cluster, and
`apply` writes. The state is in ConfigMaps, so a service that was killed continues with lists.
"""
