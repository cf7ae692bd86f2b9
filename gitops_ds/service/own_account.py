"""The account of the service's requests, as the API server authenticates it."""

from __future__ import annotations

from typing import Final

from gitops_ds.core import errors
from gitops_ds.core.cluster import Cluster, Identity
from gitops_ds.kube.apimachinery import builtin_resources

_REVIEW: Final = builtin_resources.RESOURCES["authentication.k8s.io", "SelfSubjectReview"]


async def read(cluster: Cluster) -> Identity | None:
    """The user and its groups; None if the API server does not say. Raises ClusterError for other
    errors.

    Every authenticated user may request it, unless the binding system:basic-user was changed:
    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#self-subject-review
    """
    body = {"apiVersion": _REVIEW.api_version, "kind": _REVIEW.kind, "metadata": {}}
    try:
        answer = await cluster.create(_REVIEW, body)
    except (errors.Forbidden, errors.NotFound):
        return None
    info = (answer.get("status") or {}).get("userInfo") or {}
    user = str(info.get("username") or "")
    return Identity(user, tuple(map(str, info.get("groups") or ()))) if user.strip() else None
