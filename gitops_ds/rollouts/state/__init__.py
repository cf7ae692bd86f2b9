"""The state of staged rollouts in the cluster: annotations, target revisions, records.

The only reader and writer of these annotations; `keys` has their names.
"""
