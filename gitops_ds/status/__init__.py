"""The health of every agent on every node, and the cause of a fault: the template, the node, the
cluster.

`tracker` keeps it from the informers of the controller, `agents` reads it for commands,
`status_writer` stores it for other clients.
"""
