"""The part of a plan for staged rollouts: which template a DaemonSet keeps, and which one becomes
its target.

`staging.staged` is the entry. It also has the commits of templates, and the revert of a halted one.
"""
