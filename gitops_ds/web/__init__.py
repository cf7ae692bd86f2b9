"""What the service answers over HTTP: probes, metrics, webhooks, the page. It steers nothing but
the wish for a pass.
"""
