"""The part of the DaemonSet controller for staged rollouts: it collects the inputs of
`decisions.stages.decide`, and measures gates.
"""
