"""Base against head, forges and report formats. Nothing here yet: `gitops-ds check` looks at one revision."""
