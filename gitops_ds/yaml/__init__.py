"""YAML that keeps the place of each value: a finding names its line, and an edit changes its lines
only.

`parser` reads documents, `edit` and `splice` change a text, `writer` makes a new one; `provenance`
finds the origin of values in Helm charts and kustomizations.
"""
