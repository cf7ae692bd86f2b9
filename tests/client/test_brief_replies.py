"""Brief replies to writes of pods, of a real API server: `pod_of` reads the same pod from them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.objects import CONFIG_MAP, POD
from gitops_ds.kube.apimachinery import pods
from gitops_ds.kube.client import config, rest
from tests import controlplane

pytestmark = pytest.mark.controlplane


def test_a_brief_reply_to_a_write_of_a_pod_has_the_fields_of_decisions(
    control_plane_without_daemonsets: controlplane.ControlPlane,
) -> None:
    access = config.access(str(control_plane_without_daemonsets.kubeconfig), None)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": "brief", "labels": {"app": "brief"}},
        "spec": {
            "schedulingGates": [{"name": "example.com/gate"}],
            "containers": [{"name": "agent", "image": "registry.example.com/agent:1"}],
        },
    }
    label = {"metadata": {"labels": {"app": "other"}}}

    async def scene() -> None:
        async with (
            rest.HttpCluster(access, brief_replies=True) as brief,
            rest.HttpCluster(access) as whole,
        ):

            async def compare(reply: Any) -> None:
                assert reply["kind"] == "Pod"
                assert not {"containers", "tolerations"} & reply["spec"].keys()
                assert "managedFields" not in reply["metadata"]
                stored = await whole.get(POD, "default", "brief")
                assert pods.pod_of(reply) == pods.pod_of(stored)

            await compare(await brief.create(POD, pod))
            await compare(await brief.patch(POD, "default", "brief", label, type=PatchType.MERGE))
            stored = await brief.get(POD, "default", "brief")
            assert stored["spec"]["containers"]
            stored["metadata"]["labels"]["app"] = "third"
            await compare(await brief.replace(POD, stored))
            reply = await brief.delete(POD, "default", "brief")
            assert (reply["kind"], pods.pod_of(reply).labels) == ("Pod", {"app": "third"})
            with pytest.raises(errors.NotFound):
                await brief.delete(POD, "default", "brief")
            name = {"namespace": "default", "name": "brief"}
            one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name}
            await brief.create(CONFIG_MAP, one)
            ended = await brief.delete(CONFIG_MAP, "default", "brief")
            assert (ended["kind"], ended["status"]) == ("Status", "Success")

    asyncio.run(scene())
