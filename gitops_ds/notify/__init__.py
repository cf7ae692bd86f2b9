"""The outputs of an event: a log line, a metric, a Kubernetes Event, a notification.

Each follows from the definition of the event's class in `core.events`.
"""
