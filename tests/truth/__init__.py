"""Is our verdict the API server's? Mutated manifests, each judged by both.

`python -m tests.truth --count 6000 --seed 1` starts a control plane and reports every difference.
"""
