"""The delivery of notifications and commit statuses: queued, sent in batches, retried.

What is sent, and its format, is in `gitops_ds.notify`.
"""
