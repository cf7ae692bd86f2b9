"""What an account that may only write DaemonSets brings onto ControllerRevisions: the DaemonSet
controller of Kubernetes copies the annotations, and the labels of the template.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.objects import key_of
from gitops_ds.deploy import live_state
from gitops_ds.rollouts.state import keys
from tests import controlplane
from tests.cluster import program
from tests.plan.world import daemonset

pytestmark = pytest.mark.controlplane


def test_a_revision_of_the_controller_of_kubernetes_is_never_a_target(
    tmp_path: Path, control_plane: controlplane.ControlPlane
) -> None:
    plane, space = control_plane, "forged-revisions"
    plane.kubectl("create", "namespace", space)
    body = daemonset("agent", "registry.example.com/agent:1", space)
    record = json.dumps({"halt": {"at": 1.0, "stage": "canary", "message": "forged"}})
    body["metadata"]["annotations"] = {
        keys.ROLLOUT_RECORD: record,
        keys.TEMPLATE_DIGEST: "forged",
    }
    body["spec"]["template"]["metadata"]["labels"][names.ROLLOUT] = "forged"
    (tmp_path / "agent.json").write_text(json.dumps(body))
    plane.kubectl("apply", "-f", str(tmp_path / "agent.json"))

    def read(kind: str) -> list[dict[str, Any]]:
        words = ("-n", space, "get", kind, "-o", "json", "--show-managed-fields")
        items: list[dict[str, Any]] = json.loads(plane.kubectl(*words))["items"]
        return items

    (forged,) = program.eventually(
        lambda: read("controllerrevisions"), lambda items: len(items) == 1
    )
    assert forged["metadata"]["annotations"][keys.ROLLOUT_RECORD] == record
    assert forged["metadata"]["labels"][names.ROLLOUT] == "forged"
    (live,) = read("daemonsets")
    seen = live_state.assemble({key_of(live): live}, [forged], [])
    assert seen.targets == {}
    assert [revision.name for revision in seen.revisions[key_of(live)]] == [
        forged["metadata"]["name"]
    ]
