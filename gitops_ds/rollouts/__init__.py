"""Staged rollouts of DaemonSets: a new template reaches the nodes stage by stage, and the first
failure that it causes halts it.

The state of a rollout is in the cluster alone: annotations of the DaemonSet, and a target revision
with the record (`state`). `decisions.stages.decide` selects the next nodes, also in a forecast.
`staging` has the part of a plan, the commit of each template, and the revert of a halted one;
`controller` the part of the controller; `views` what users see.
"""
