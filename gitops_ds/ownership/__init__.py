"""Who owns an object and each of its fields, and so what a plan may change.

An object is ours by its tracking ID and the inventory of the repository, a field by
`metadata.managedFields`. Labels are hints: other controllers copy them. `options` has what a user
permits beyond that, `permissions` what a repository is allowed.
"""
