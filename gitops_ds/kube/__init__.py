"""The API of Kubernetes: `apimachinery` has the meaning of its objects, as pure functions with the
upstream file that each one follows; `client` has requests, watches and leader election.
"""
