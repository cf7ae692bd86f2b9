"""The change of a DaemonSet whose rollout begins or ends, with the nodes of its target."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.change import Change, Operation
from gitops_ds.core.live import Live, Node, NodeImpact, Revision
from gitops_ds.core.objects import Key
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import planner
from tests.staging.staged_objects import KEY, live, live_object, manifest, own, target

TWO = target("2")
PROMOTED = target("2", promoted=True)
NODES = (Node("a"), Node("b"))
BEFORE = NodeImpact(lost=("x",), restarted=("y",))


def update(name: str, **more: Any) -> Change:
    """An update of the DaemonSet that names this target."""
    body = live_object("1", name)
    return Change(Operation.UPDATE, KEY, replace(manifest("1"), body=body), nodes=BEFORE, **more)


def revision_manifest(known: Revision = TWO, **spec: Any) -> dict[Key, Manifest]:
    key = Key("apps", "ControllerRevision", KEY.namespace, known.name)
    body = dict(known.raw)
    template = body["data"]["spec"]["template"]
    body["data"] = {"spec": {"template": {**template, "spec": {**template["spec"], **spec}}}}
    return {key: replace(manifest("1"), key=key, body=body)}


def cluster(*known: Revision, target: str = "") -> Live:
    return replace(live(live_object("1", target), own("1"), *known), nodes=NODES)


def test_the_change_that_begins_a_rollout_has_the_fields_and_nodes_of_its_target() -> None:
    manifests = revision_manifest(nodeSelector={"pool": "gpu"})
    found = planner._with_target(update(TWO.name), manifests, cluster())
    assert {str(field.path[-1]) for field in found.fields} == {"image", "nodeSelector"}
    assert found.nodes == NodeImpact(lost=("a", "b"), restarted=("y",))
    unknown = replace(cluster(), nodes=None)
    assert planner._with_target(update(TWO.name), manifests, unknown).nodes.lost == ()


@pytest.mark.parametrize(
    ("change", "live"),
    [
        (update(TWO.name), cluster(TWO, target=TWO.name)),  # the rollout is in progress
        (update(""), cluster()),
        (update("unknown"), cluster()),
        (replace(update(TWO.name), operation=Operation.CREATE), cluster()),
        (replace(update(TWO.name), key=replace(KEY, kind="ConfigMap")), cluster()),
        (replace(update(TWO.name), manifest=None), cluster()),
        (update(TWO.name), replace(cluster(), objects={})),
        (update(""), cluster(TWO, target=TWO.name)),  # a revert
    ],
)
def test_any_other_change_stays(change: Change, live: Live) -> None:
    manifests = revision_manifest(nodeSelector={"pool": "gpu"})
    assert planner._with_target(change, manifests, live) == change


def test_the_change_that_follows_a_promotion_loses_no_nodes_again() -> None:
    promoted = cluster(PROMOTED, target=TWO.name)
    found = planner._with_target(update(""), {}, promoted)
    assert found == replace(update(""), nodes=NodeImpact(restarted=("y",)))
    other = cluster(target("3", promoted=True), TWO, target=TWO.name)
    assert planner._with_target(update(""), {}, other) == update("")
