"""Who may only change pods, as the role edit of Kubernetes, decides nothing about a template: the
API server admits other images in a running pod, and counts the changes of its spec.
"""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.core.cluster import PatchType
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.rollouts import RolloutHalted
from gitops_ds.core.objects import POD, Body
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import Scene, both, ends

play = rollout_scene.play
CANARIES = 2
# An image that the registry does not have, or one of before; admission adds digests in this form.
DIGEST = f"@sha256:{'0' * 64}"
NO_PULL = {
    "phase": "Pending",
    "containerStatuses": [
        {"name": "agent", "restartCount": 1, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    ],
}


async def change_canaries(scene: Scene) -> list[Body]:
    """The pods of the canary, in which a tenant changed the digest of the image."""
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == CANARIES)
    mallory, changed = scene.cluster.client("mallory"), []
    for body in (await scene.cluster.list(POD)).items:
        name, image = body["metadata"]["name"], body["spec"]["containers"][0]["image"]
        if image.endswith(":2"):
            patch = [{"op": "replace", "path": "/spec/containers/0/image", "value": image + DIGEST}]
            changed.append(await mallory.patch(POD, "default", name, patch, type=PatchType.JSON))
    return changed


@both
@pytest.mark.parametrize("is_pulled", [True, False])
async def test_an_image_that_a_tenant_changes_in_a_pod_neither_proves_nor_halts(
    scene: Scene, /, powers: Powers, is_pulled: bool
) -> None:
    changed = await change_canaries(scene)
    assert [body["metadata"]["generation"] for body in changed] == [2] * CANARIES
    if not is_pulled:
        kubelet = scene.cluster.client("kubelet")
        for body in changed:
            name = body["metadata"]["name"]
            conditions = [{**one, "status": "False"} for one in body["status"]["conditions"]]
            status = {**NO_PULL, "conditions": conditions}
            await kubelet.patch(POD, "default", name, {"status": status}, subresource="status")
    await asyncio.sleep(5)
    await ends(scene, "2")
    assert not [event for event in scene.events if isinstance(event, RolloutHalted)]
    images = {image for image, _ in scene.pods().values()}
    assert images == {"2"}
