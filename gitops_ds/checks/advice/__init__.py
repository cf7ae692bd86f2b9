"""The rules of objects that the API server accepts and that cause harm in every pod or later.

A rule is a function over one object or its pod template; its family decides the module.
"""
