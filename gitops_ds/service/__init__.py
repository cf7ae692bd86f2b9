"""The process in the cluster: it composes the features into deployers, the controller and the page.

`main` opens the one connection, `assembly` makes the parts, `settings` reads the settings file,
`web` serves the page and webhooks. A part runs while the process leads (`runnable`).
"""
