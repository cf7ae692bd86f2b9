"""The part of a plan for staged rollouts: which template a DaemonSet keeps, and which one becomes
its target.

`staging.staged` is the entry.
"""
