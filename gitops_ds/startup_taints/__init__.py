"""Pure decisions about startup taints: which nodes get work, and for which agents others wait."""
