"""The rules over a change: an object of the base against that of the head, on every cluster.

They run in `check --base` and in the checks of a pull request.
"""
