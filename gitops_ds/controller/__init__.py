"""The loop from DaemonSets to pods: it watches, decides and writes.

`observer` watches and never writes, so commands and the page use it alone. `controller` adds the
queue, and `executor` performs a decision without one of its own.
"""
