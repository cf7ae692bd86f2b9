"""The rules over all objects of one cluster and, if they are known, its nodes.

A rule is here if one object alone shows no violation: two agents with one port, a missing Secret.
"""
