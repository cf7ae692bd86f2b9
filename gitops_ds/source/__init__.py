"""From a repository to manifests.

`git` fetches and verifies a commit, `render` turns its files into the objects of one cluster with
the origin of each value, and `renderers` runs helm and kustomize in the `sandbox`.
"""
