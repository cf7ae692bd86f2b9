"""The decisions of the DaemonSet controller, which replaces the built-in one or runs beside it.

`decide.decide` is the whole controller as one pure function, from an `Observation` to a `Decision`.
The controller, the preview of a plan and the simulated cluster call the same one, so a preview
shows what happens. `cache` keeps the observation, `workqueue` the order of the work.
"""
