"""The tasks of staged rollouts beside the loop: approvals from Git and forges, measured gates,
reports between clusters, reverts.
"""
