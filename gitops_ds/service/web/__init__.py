"""The HTTP endpoints of the service: probes, metrics, webhooks, the page. Their only effect is the
request of a reconciliation.
"""

from gitops_ds.core import http_library as http_library  # before `aiohttp.web`
