"""An admission policy of a real API server denies adoptions: no foreign pod is deleted, and the
adoption follows the policy's end.

https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""

from __future__ import annotations

import asyncio
import urllib.error
from typing import Any

import pytest

from gitops_ds.core.decision import Adopt
from gitops_ds.core.objects import NAMESPACE
from gitops_ds.kube.apimachinery import pods
from gitops_ds.kube.client import config, rest
from tests import controlplane
from tests.contract.scenes import Stage, eventually
from tests.contract.test_contract_adoption import made, orphan, there, turns_daemonset

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
# of a denial, each with its status
REASONS = {"Forbidden": 403, "RequestEntityTooLarge": 413, "Invalid": 422}

pytestmark = pytest.mark.controlplane


class Policy:
    """Denies each update of a pod of one namespace that changes its owners, as soon as the API
    server has taken it into force.
    """

    def __init__(self, plane: controlplane.ControlPlane, namespace: str, reason: str) -> None:
        self.plane, self.namespace, self.name, self.reason = (
            plane,
            namespace,
            f"no-adoption-{namespace}",
            reason,
        )

    def begin(self) -> None:
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["UPDATE"],
            "resources": ["pods"],
        }
        owners = "has({0}.metadata.ownerReferences) ? {0}.metadata.ownerReferences : []"
        same = f"({owners.format('object')}) == ({owners.format('oldObject')})"
        validation = {
            "expression": same,
            "message": "owners stay as they are",
            "reason": self.reason,
        }
        self._create(
            "Policy", {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
        )
        where = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
        }
        self._create(
            "PolicyBinding",
            {"policyName": self.name, "validationActions": ["Deny"], "matchResources": where},
        )

    def end(self) -> None:
        for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            self.plane.request("DELETE", f"{REGISTRATION}/{plural}/{self.name}")

    def answer(self, pod: str) -> int:
        """The status with which a dry run of an adoption is answered."""
        owner = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "probe",
            "uid": "probe",
            "controller": True,
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}?dryRun=All"
        try:
            self.plane.request(
                "PATCH",
                path,
                {"metadata": {"ownerReferences": [owner]}},
                "application/merge-patch+json",
            )
        except urllib.error.HTTPError as error:
            return error.code
        return 200

    def _create(self, kind: str, spec: dict[str, Any]) -> None:
        plural = {
            "Policy": "validatingadmissionpolicies",
            "PolicyBinding": "validatingadmissionpolicybindings",
        }[kind]
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"ValidatingAdmission{kind}",
            "spec": spec,
        }
        self.plane.request(
            "POST", f"{REGISTRATION}/{plural}", {**body, "metadata": {"name": self.name}}
        )


async def in_force(policy: Policy, pod: str, status: int) -> None:
    """Returns when the API server answers adoptions so; it takes a policy, and its end, into force
    after a while.
    """

    async def holds() -> bool:
        return await asyncio.to_thread(policy.answer, pod) == status

    await eventually(holds)


@pytest.mark.parametrize("reason", REASONS)
def test_a_policy_that_denies_adoptions_deletes_no_pod_and_its_removal_permits_them(
    control_plane_without_daemonsets: controlplane.ControlPlane, reason: str
) -> None:
    plane, namespace = control_plane_without_daemonsets, f"admission-{reason.lower()}"
    policy = Policy(plane, namespace, reason)

    async def denied(stage: Stage) -> None:
        turns = await made(stage)
        await orphan(turns, "older", "far-1", "old")  # beside a pod of our DaemonSet
        await orphan(turns, "alone", "far-2", "old")  # in its place
        before = set(await there(stage))
        await asyncio.to_thread(policy.begin)
        await in_force(policy, "older", REASONS[reason])
        for _ in range(4):
            decision = await turns.turn()
            assert decision.actions
            assert all(isinstance(action, Adopt) for action in turns.done)
            assert set(await there(stage)) == before
        await asyncio.to_thread(policy.end)
        await in_force(policy, "older", 200)
        await turns.turn()
        ours = (await turns_daemonset(stage)).uid
        owners = [pods.controller_of(body["metadata"]) for body in (await there(stage)).values()]
        assert [owner and owner.uid for owner in owners] == [ours] * len(before)

    async def played() -> None:
        async with rest.HttpCluster(config.access(str(plane.kubeconfig), None)) as cluster:
            stage = Stage(cluster, namespace)
            await cluster.create(
                NAMESPACE,
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            )
            await denied(stage)

    asyncio.run(played())
