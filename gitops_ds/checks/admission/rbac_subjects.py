"""Subjects of role bindings. Source:
https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-subjects
"""

from __future__ import annotations

from collections.abc import Iterator

from gitops_ds.checks.engine import rule
from gitops_ds.checks.engine.rule import Violation
from gitops_ds.model.objects import Body


def accounts_have_a_namespace(body: Body) -> Iterator[Violation]:
    """DS005: a service account in a ClusterRoleBinding requires a namespace. In a RoleBinding, the
    default is the namespace of the binding.
    """
    if body.get("kind") != "ClusterRoleBinding":
        return
    for at, subject in enumerate(rule.items(body.get("subjects"))):
        reference = rule.section(subject)
        if reference.get("kind") == "ServiceAccount" and not reference.get("namespace"):
            yield Violation(
                ("subjects", at),
                f'the service account "{reference.get("name", "")}" requires a namespace',
            )
