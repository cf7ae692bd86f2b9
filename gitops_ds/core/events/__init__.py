"""Every event of the service, by topic: a class with its text and an `EventDefinition`.

`definition` has the public names; logs, metrics, Kubernetes events and notifications follow from
them. `bus` is the only way from an emitter to the subscribers.
"""
