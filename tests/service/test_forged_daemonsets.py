"""A tenant who may only write DaemonSets deletes the agent and creates it again in the name of the
service, beside the running service: his template is never proven, and his pods are replaced. What
he writes into the annotations of a rollout, or removes, neither returns nor opens a node.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gitops_ds.core import names
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.deploy import state_store
from gitops_ds.kube.client import config, rest
from gitops_ds.rollouts.state import keys, proofs
from gitops_ds.rollouts.state.daemonset_statements import RolloutPhase
from tests import controlplane
from tests.gitservers import Upstream
from tests.service import staged
from tests.service.staged import CANARIES, PodWatch, Soaks

pytestmark = staged.MARKS
NODES, ATTEMPTS = 6, 6
SOAKS, LONG = Soaks(canary=1), Soaks(canary=86_400)
TENANT = "tenant"
PATH = "/apis/apps/v1/namespaces/default/daemonsets/agent"
RULE = {
    "apiGroups": ["apps"],
    "resources": ["daemonsets"],
    "verbs": ["get", "list", "patch", "update", "create", "delete"],
}
RESTING = {keys.TARGET: None, keys.PHASE: RolloutPhase.COMPLETE}
AT_ONCE = {keys.ROLLOUT_POLICY: '{"policy": {"stages": [{"name": "all"}]}, "pools": []}'}
UNPACED = {keys.ROLLOUT_POLICY: None}
GROUP = "rbac.authorization.k8s.io"


def test_a_daemonset_that_a_tenant_creates_again_proves_nothing(tmp_path: Path) -> None:
    staged.play(_scenes, tmp_path, NODES, SOAKS)


async def _scenes(
    plane: controlplane.ControlPlane, upstream: Upstream, watch: PodWatch, log: Path
) -> None:
    _grant(plane)
    before = await _history(plane)
    assert before.proof is not None
    annotation = _proven(plane)
    assert annotation["template"] == before.proof.template
    for attempt in range(ATTEMPTS):
        tag = "1" if attempt == ATTEMPTS - 1 else f"evil{attempt}"
        forged = await asyncio.to_thread(_recreate, plane, tag)
        assert forged["metadata"]["generation"] == 1

        def is_corrected() -> bool:
            assert _proven(plane)["template"] == annotation["template"]
            return staged.tag_of(plane) == "1"

        await staged.until(is_corrected, log.read_text)
        await watch.until(lambda: len(watch.on("1")) == NODES == len(watch.pods), log)
        known = await _history(plane)
        assert known.proof == before.proof
        if tag != "1":
            template = proofs.identity(forged["spec"]["template"])
            assert template not in {proof.template for proof in (known.proof, *known.earlier)}
    upstream.commit(staged.files("2", staged.policy(LONG)))
    await watch.until(lambda: len(watch.on("2")) == CANARIES, log)
    await asyncio.sleep(3)
    canaries = watch.uids("2")
    assert len(canaries) == CANARIES
    applied = _read_by_rollout(plane)
    # After some corrections the deployer waits for longer.
    for forged in (RESTING, AT_ONCE, UNPACED) * 2:
        await asyncio.to_thread(_annotate, plane, forged)
        await asyncio.sleep(0.3)
    await staged.until(lambda: _read_by_rollout(plane) == applied, log.read_text)
    assert watch.uids("2") == canaries


def _read_by_rollout(plane: controlplane.ControlPlane) -> dict[str, str]:
    """The annotations that the rollout reads."""
    annotations = staged.agent(plane)["metadata"]["annotations"]
    return {name: annotations[name] for name in keys.READ_BY_ROLLOUTS if name in annotations}


def _proven(plane: controlplane.ControlPlane) -> Any:
    """The proof in the annotation of the DaemonSet."""
    return json.loads(staged.agent(plane)["metadata"]["annotations"][keys.PROVEN])


async def _history(plane: controlplane.ControlPlane) -> TemplateHistory:
    """What the state of the service has about the templates of the agent."""
    async with rest.HttpCluster(config.access(str(plane.kubeconfig), None)) as cluster:
        (state,) = (await state_store.load_all(cluster, staged.STATES)).values()
    ((_, history),) = state.templates.items()
    return history


def _grant(plane: controlplane.ControlPlane) -> None:
    metadata = {"name": TENANT, "namespace": "default"}
    role = {"apiGroup": GROUP, "kind": "Role", "name": TENANT}
    subject = {"apiGroup": GROUP, "kind": "User", "name": TENANT}
    for plural, kind, fields in (
        ("roles", "Role", {"rules": [RULE]}),
        ("rolebindings", "RoleBinding", {"roleRef": role, "subjects": [subject]}),
    ):
        body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, **fields}
        plane.request("POST", f"/apis/{GROUP}/v1/namespaces/default/{plural}", body)


def _annotate(plane: controlplane.ControlPlane, annotations: Mapping[str, str | None]) -> None:
    """Writes annotations under the name of our field manager."""
    who = {"Authorization": f"Bearer {plane.token}", "Impersonate-User": TENANT}
    tls = ssl.create_default_context(cafile=str(plane.ca))
    connection = http.client.HTTPSConnection("127.0.0.1", plane.port, timeout=60, context=tls)
    body = json.dumps({"metadata": {"annotations": annotations}})
    headers = {**who, "Content-Type": "application/merge-patch+json"}
    connection.request("PATCH", f"{PATH}?fieldManager={names.FIELD_MANAGER}", body, headers)
    assert connection.getresponse().status < 400
    connection.close()


def _recreate(plane: controlplane.ControlPlane, tag: str) -> Any:
    """Deletes the DaemonSet and applies a copy with another image, over one connection."""
    tls = ssl.create_default_context(cafile=str(plane.ca))
    connection = http.client.HTTPSConnection("127.0.0.1", plane.port, timeout=60, context=tls)
    who = {"Authorization": f"Bearer {plane.token}", "Impersonate-User": TENANT}

    def request(method: str, path: str, body: Any = None, content: str = "application/json") -> Any:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {**who, "Content-Type": content})
        reply = connection.getresponse()
        answer = json.loads(reply.read())
        assert reply.status < 400, answer
        return answer

    live = request("GET", PATH)
    copied = {key: live["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    live["spec"]["template"]["spec"]["containers"][0]["image"] = staged.image(tag)
    body = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": copied, "spec": live["spec"]}
    request("DELETE", f"{PATH}?propagationPolicy=Background")
    query = f"?fieldManager={names.FIELD_MANAGER}&force=true"
    forged = request("PATCH", PATH + query, body, "application/apply-patch+yaml")
    connection.close()
    return forged
