"""The nouns that every feature shares: objects and keys, nodes and pods, changes, decisions,
events.

They are frozen values without behaviour of their own, so a decision is the same in a test, in a
preview and in the service. `cluster` is the protocol of requests to a cluster;
`errors` has every error with its exit code; `redaction` removes secrets from every output.
"""
