"""`gitops-ds diff` prints what `kubectl diff --server-side` prints for the same objects."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core import names
from tests import controlplane
from tests.cluster import program
from tests.cluster.program import Desk
from tests.plan.world import config_map, daemonset

pytestmark = pytest.mark.controlplane


@pytest.fixture
def at(tmp_path: Path, control_plane: controlplane.ControlPlane) -> Desk:
    return program.desk(tmp_path, control_plane.kubeconfig)


def stamped(
    plane: controlplane.ControlPlane, space: str, body: dict[str, Any], *fields: str
) -> dict[str, Any]:
    """A manifest with what `apply` added to its live object."""
    what = f"{body['kind'].lower()}/{body['metadata']['name']}"
    live = json.loads(plane.kubectl("-n", space, "get", what, "-o", "json"))["metadata"]
    ours = {
        field: {k: v for k, v in (live.get(field) or {}).items() if k in fields}
        for field in ("labels", "annotations")
    }
    return {**body, "metadata": {**body["metadata"], **ours}}


def by_kubectl(
    plane: controlplane.ControlPlane, bodies: list[dict[str, Any]]
) -> subprocess.CompletedProcess[str]:
    command = [
        str(controlplane.programs() / "kubectl"),
        *("--kubeconfig", str(plane.kubeconfig)),
        *("diff", "--server-side", "--field-manager", names.FIELD_MANAGER, "-f", "-"),
    ]
    stream = json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies})
    return subprocess.run(command, input=stream, capture_output=True, text=True, check=False)


def comparable(text: str) -> str:
    """Without the random names of directories and the times of files."""
    text = re.sub(r"\S*/(LIVE|MERGED)-\w+/", r"\1/", text)
    return re.sub(r"^((?:---|\+\+\+) \S+)\t.*$", r"\1", text, flags=re.MULTILINE)


def test_the_output_is_that_of_kubectl(
    at: Desk, space: str, control_plane: controlplane.ControlPlane
) -> None:
    agent = daemonset("agent", "registry.example.com/agent:1", space)
    at.commit("An agent", agent=agent, settings=config_map("settings", space, a="1", b="x\ny\n"))
    assert at.run("apply").code == 0
    assert at.run("diff").code == 0

    agent["spec"]["template"]["spec"]["containers"][0] |= {
        "image": "registry.example.com/agent:2",
        "args": ["--a: b", "yes", "a long argument " * 8],
    }
    settings = config_map("settings", space, b="x\nz\n", c="012")
    more = config_map("more", space, a="1")
    at.commit("A change", agent=agent, settings=settings, more=more)
    shown = at.run("diff")
    marks = (
        *(names.OWNER_LABEL, names.TRACKING_ID, names.COMMIT, names.PATH, names.REPOSITORY),
        names.CHANGE_CAUSE,
    )
    same = [stamped(control_plane, space, body, *marks) for body in (agent, settings)]
    owner = same[0]["metadata"]["labels"][names.OWNER_LABEL]
    tracking = f"{owner}:/ConfigMap:{space}/more"
    more["metadata"] |= {
        "labels": {names.OWNER_LABEL: owner},
        "annotations": {names.TRACKING_ID: tracking},
    }
    theirs = by_kubectl(control_plane, [*same, more])
    assert (shown.code, theirs.returncode) == (1, 1), (shown.err, theirs.stderr)
    # the uid and the creation of a dry run of a new object differ from request to request
    volatile = re.compile(r"^\+  (uid|creationTimestamp): .*\n", re.MULTILINE)
    ours, kubectls = (volatile.sub("", comparable(text)) for text in (shown.out, theirs.stdout))
    assert ours == kubectls
    assert at.run("apply").code == 0
    assert at.run("diff").code == 0


def test_a_drift_is_shown_as_what_apply_would_write(
    at: Desk, space: str, control_plane: controlplane.ControlPlane
) -> None:
    at.commit("An agent", agent=daemonset("agent", "registry.example.com/agent:1", space))
    assert at.run("apply").code == 0
    image = "agent=registry.example.com/agent:9"
    control_plane.kubectl("-n", space, "set", "image", "ds/agent", image)
    shown = at.run("diff")
    assert shown.code == 1
    assert "-      - image: registry.example.com/agent:9\n" in shown.out
    assert "+      - image: registry.example.com/agent:1\n" in shown.out


def test_a_deletion_is_an_empty_file_and_needs_prune(at: Desk, space: str) -> None:
    at.commit("An agent", agent=daemonset("agent", namespace=space), more=config_map("more", space))
    assert at.run("apply").code == 0
    at.commit("Less", more=None)
    assert at.run("diff").code == 0
    pruned = at.run("diff", "--prune")
    assert pruned.code == 1
    assert "-kind: ConfigMap\n" in pruned.out
