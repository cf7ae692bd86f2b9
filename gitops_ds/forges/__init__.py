"""Where code is reviewed: a comment under a pull request, the status of a commit. Requests are made
by pure functions.
"""
