"""The deployer of one repository: its start, its schedule, its credentials, its commits.

`git_deployer` composes it with `deploy.loop`; `git_source` prepares commits in processes of their
own.
"""
