"""Git repositories: commits are read, verified, written and pushed, always by running git."""
