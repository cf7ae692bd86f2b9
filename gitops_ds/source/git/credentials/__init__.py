"""The credentials of a Git server, their scope, and the files that pass them to git."""
