"""The inputs of `decisions.stages.decide` beside pods and nodes, which the controller collects: its
memory of rollouts, and the measured gates.
"""
