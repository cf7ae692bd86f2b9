"""The plan: which objects change, and why others do not.

Pure. `planner.plan` is the entry, for the service as for the command line; its inputs are the
bundle, the live objects and a context.
"""
