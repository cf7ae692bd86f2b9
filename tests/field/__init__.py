"""Public bug reports of other projects, each as a small input of our own, with the right value.

A row names its report as owner/repository#number. What is right was decided by a real API server,
by kubectl, or by the maintainers of the project in the report.
"""
