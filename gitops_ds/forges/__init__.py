"""Forges: comments on pull requests, commit statuses, new pull requests. Pure functions build the
requests, `client` sends them.
"""
