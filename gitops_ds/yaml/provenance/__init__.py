"""The source of each value of a rendered manifest: file, line and column, also through helm and
kustomize.
"""
