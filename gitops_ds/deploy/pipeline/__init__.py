"""From the files of a commit to a checked bundle: `prepare.prepare`, the same for the service, the
command line and a pull request.
"""
