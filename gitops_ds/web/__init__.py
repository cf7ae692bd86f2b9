"""The HTTP endpoints of the service: probes, metrics, webhooks, the page. Their only effect is the
request of a reconciliation.
"""
