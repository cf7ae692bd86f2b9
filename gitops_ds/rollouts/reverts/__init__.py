"""The revert of a halted rollout: which rollouts are halted, which commits are reverted, and the
message of the revert.
"""
