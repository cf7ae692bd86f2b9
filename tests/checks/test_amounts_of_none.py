"""The API server ignores an amount that is null: found by mutated manifests
(tests/truth).
"""

from __future__ import annotations

from gitops_ds.checks.admission import resources
from tests.plan.world import daemonset


def test_a_limit_of_null_is_a_limit_of_zero() -> None:
    body = daemonset("agent", "registry.example.com/agent:1", "default")
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"memory": "1Mi"}, "limits": {"memory": None}}
    (path,) = (violation.path for violation in resources.requests_within_limits(body))
    assert path[-3:] == ("resources", "requests", "memory")
    container["resources"]["requests"] = {"memory": None}
    assert list(resources.requests_within_limits(body)) == []
