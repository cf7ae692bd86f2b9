"""The changes of a commit, from its two sides alone."""

from __future__ import annotations

import copy
from typing import Any

from gitops_ds.cli.snapshot import cluster_snapshot
from gitops_ds.core import names
from gitops_ds.core.change import Operation
from gitops_ds.core.live import Live
from gitops_ds.core.objects import key_of
from gitops_ds.core.redaction.patterns import HIDDEN
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.plan import base_diff
from tests.plan import world
from tests.plan.world import config_map, daemonset


def bundle(*bodies: dict[str, Any]) -> Bundle:
    return prepare.prepare(
        world.snapshot({f"{index}.json": body for index, body in enumerate(bodies)})
    ).bundle


def operations(base: Bundle, head: Bundle) -> dict[str, Operation]:
    return {change.key.name: change.operation for change in base_diff.changes(base, head)}


def test_objects_are_created_deleted_changed_or_unchanged() -> None:
    base = bundle(daemonset("stays"), daemonset("changes"), daemonset("goes"))
    head = bundle(
        daemonset("stays"), daemonset("changes", "registry.example.com/agent:2"), daemonset("comes")
    )
    assert operations(base, head) == {
        "stays": Operation.KEEP,
        "changes": Operation.UPDATE,
        "goes": Operation.DELETE,
        "comes": Operation.CREATE,
    }


def test_an_equivalent_notation_is_not_a_change() -> None:
    defaulted = daemonset()
    defaulted["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    assert operations(bundle(daemonset()), bundle(defaulted)) == {"agent": Operation.KEEP}


def test_a_new_template_is_a_new_revision_and_restarts_the_pods_of_known_nodes() -> None:
    head = bundle(daemonset(image="registry.example.com/agent:2"))
    (change,) = base_diff.changes(bundle(daemonset()), head, cluster_snapshot.simulated(3))
    assert change.rollout is not None
    assert (change.rollout.current, change.rollout.becomes, change.rollout.known_as) == (1, 2, None)
    assert change.nodes.restarted == ("node-000", "node-001", "node-002")


def test_another_node_selector_removes_the_pods_of_some_nodes() -> None:
    head = bundle(daemonset(nodeSelector={"pool": "gpu"}))
    (change,) = base_diff.changes(bundle(daemonset()), head, cluster_snapshot.simulated(2))
    assert change.nodes.lost == ("node-000", "node-001")
    (gone,) = base_diff.changes(bundle(daemonset()), bundle(), cluster_snapshot.simulated(2))
    assert gone.nodes.lost == ("node-000", "node-001")


def test_another_object_that_leaves_is_deleted_and_no_node_loses_it() -> None:
    (gone,) = base_diff.changes(bundle(config_map("c")), bundle(), cluster_snapshot.simulated(2))
    assert (gone.operation, gone.key.kind, gone.nodes.lost) == (Operation.DELETE, "ConfigMap", ())


def test_nodes_wait_for_an_agent_that_becomes_required_for_work() -> None:
    required = daemonset()
    required["metadata"]["annotations"] = {names.REQUIRED_FOR_WORK: "true"}
    nodes = cluster_snapshot.simulated(1)
    (change,) = base_diff.changes(bundle(daemonset()), bundle(required), nodes)
    assert change.nodes.waiting == ("node-000",)


def test_other_objects_have_no_revisions() -> None:
    (change,) = base_diff.changes(
        bundle(config_map("settings", level="info")), bundle(config_map("settings", level="debug"))
    )
    assert (change.operation, change.rollout) == (Operation.UPDATE, None)
    assert [str(field.path[-1]) for field in change.fields] == ["level"]


def live(*bodies: dict[str, Any]) -> Live:
    return Live({key_of(body): body for body in bodies})


def test_the_drift_from_the_base_is_what_an_apply_would_change() -> None:
    settings = config_map("settings", level="info", password="one")
    base = bundle(daemonset(), settings)
    by_hand = {**settings, "data": {"level": "debug", "password": "one"}}
    ((key, changes),) = base_diff.drift(base, live(daemonset(), by_hand)).items()
    assert key == key_of(settings)
    assert [(change.path, change.old, change.new) for change in changes] == [
        (("data", "level"), "debug", "info")
    ]
    assert base_diff.drift(base, live()) == {}
    assert base_diff.drift(base, live(daemonset(), settings)) == {}


def test_labels_and_annotations_of_an_apply_are_not_drift_and_others_are() -> None:
    settings = config_map("settings", level="info")
    settings["metadata"] |= {"annotations": {"team": "a"}}
    base = bundle(settings)
    present = copy.deepcopy(settings)
    present["metadata"]["annotations"] |= {names.COMMIT: "c1", names.CHANGE_CAUSE: "A change"}
    present["metadata"]["labels"] = {names.OWNER_LABEL: "test"}
    ours = {f"f:{key}": {} for key in present["metadata"]["annotations"]}
    fields = {"f:metadata": {"f:annotations": ours}}
    entry = {"manager": names.FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields}
    present["metadata"]["managedFields"] = [entry]
    assert base_diff.drift(base, live(present)) == {}
    present["metadata"]["annotations"]["team"] = "b"
    ((change,),) = base_diff.drift(base, live(present)).values()
    assert (change.old, change.new) == ("b", "a")


def test_a_redacted_value_is_not_drift() -> None:
    base = bundle(config_map("settings", password="one", level="info"))
    assert base_diff.drift(base, live(config_map("settings", password=HIDDEN, level="info"))) == {}
    ((change,),) = base_diff.drift(
        base, live(config_map("settings", password="two", level="info"))
    ).values()
    assert change.old == "two"
    ((change,),) = base_diff.drift(
        base, live(config_map("settings", password="one", level=HIDDEN))
    ).values()
    assert change.new == "info"
