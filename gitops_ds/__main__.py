"""`python -m gitops_ds` is `gitops-ds`."""

from gitops_ds.cli import main

main()
