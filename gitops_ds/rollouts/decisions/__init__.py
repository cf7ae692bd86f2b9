"""The decisions about staged rollouts, and the writes of each: pure functions."""
