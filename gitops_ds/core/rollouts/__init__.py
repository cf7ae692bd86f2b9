"""The values of staged rollouts that more than one feature reads.

Decisions are in `gitops_ds.rollouts`. These modules import nothing of the features.
"""
