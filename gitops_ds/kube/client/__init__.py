"""The connection to an API server: credentials, requests, informers, leader election.

`connect` opens it, `rest` implements the protocols of `core.cluster`, `transport` has the
connections and retries, `informer` the watches.
"""
