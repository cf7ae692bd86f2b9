"""The values of a followed repository: the files of a commit, the rendered bundle, its status.

They have no git and no file system, so the same functions read a commit, a directory and a test.
"""
