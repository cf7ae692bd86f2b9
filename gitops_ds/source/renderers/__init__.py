"""The programs helm and kustomize, confined, with their results cached by content.

`source.render` reads plain files and calls them.
"""
