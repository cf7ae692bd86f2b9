"""Without `apply.allow.itself` a repository changes nothing that deploy/ installs, under any
name.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ruamel.yaml import YAML

from gitops_ds.core.objects import key_of
from gitops_ds.ownership import permissions
from gitops_ds.ownership.own_objects import OwnAccount
from gitops_ds.ownership.permissions import AllowList
from tests import installation as deploy

ALLOWED = AllowList(own=OwnAccount(frozenset({"gitops-ds"})))
# A role grants nothing without a binding, and every binding to the account is refused.
UNBOUND = "ClusterRole"


def installed() -> list[dict[str, Any]]:
    """Each object of deploy/ that a cluster gets: of base, powers, rights and monitoring."""
    folders = ("base", "powers", "rights", "monitoring")
    files = sorted(file for folder in folders for file in (deploy.DEPLOY / folder).rglob("*.yaml"))
    documents = [body for file in files for body in YAML(typ="safe").load_all(file.read_text())]
    return [
        body
        for body in documents
        if isinstance(body, dict)
        and body.get("metadata")
        and "kustomize.config.k8s.io" not in str(body.get("apiVersion"))
    ]


OBJECTS = installed()


def test_every_kind_of_deploy_is_here() -> None:
    assert len(OBJECTS) > 40
    assert {
        "ClusterRoleBinding",
        "ConfigMap",
        "Deployment",
        "FlowSchema",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "ResourceQuota",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    } <= {body["kind"] for body in OBJECTS}


@pytest.mark.parametrize("body", OBJECTS, ids=lambda body: str(key_of(body)))
def test_an_object_of_deploy_is_refused(body: dict[str, Any]) -> None:
    assert permissions.not_allowed(key_of(body), ALLOWED, body) is not None
    # As a person deletes it, of which the key and the live object remain.
    assert permissions.not_allowed(key_of(body), ALLOWED, {}, body) is not None


@pytest.mark.parametrize("body", OBJECTS, ids=lambda body: str(key_of(body)))
@pytest.mark.parametrize("name", ["agents", "gitops-dsx", "x-gitops-ds"])
def test_it_is_refused_under_another_name(body: dict[str, Any], name: str) -> None:
    renamed = copy.deepcopy(body)
    renamed["metadata"]["name"] = name
    refusal = permissions.not_allowed(key_of(renamed), ALLOWED, renamed)
    has_no_effect = body["kind"] == UNBOUND and not body["metadata"].get("labels")
    if body["kind"] != "Namespace":
        assert (refusal is None) is has_no_effect, refusal
