"""Limits for work on the content of a repository: processes, memory, CPU time, files, network.

Authors of a repository are not trusted: every program and every long computation on their files
runs below one of these.
"""
