"""Staged rollouts of DaemonSets: a new template reaches the nodes stage by stage, and the first
failure that it causes halts it.

The state of a rollout is in the cluster alone: annotations of the DaemonSet, and a target revision
with the record (`state`). `decisions.stages.decide` selects the next nodes, also in a forecast;
`inputs` has what it needs beside pods and nodes. `staging` is the part of a plan, `causes` the
commit of each template, `approvals` those of stages, `reverts` that of a halted rollout, `waves`
the order of the clusters, `views` what users see.
"""
