"""Revisions: numbers of rollouts and rollbacks, duplicates, orphans, and the history limit."""

from __future__ import annotations

import copy
from typing import Any

from gitops_ds.core import names
from gitops_ds.core.decision import (
    Adopt,
    CreatePod,
    CreateRevision,
    DeleteRevision,
    LabelRevision,
    RelabelPod,
)
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide, history
from gitops_ds.daemonset.claims import Claim
from gitops_ds.kube.apimachinery import daemonsets, revisions
from gitops_ds.rollouts.state import announced_daemonsets, keys, target_revisions
from tests.daemonset.world import OWNER, World, daemonset


def settled(**spec: Any) -> World:
    world = World(daemonset(**spec), 2)
    world.settle()
    return world


def roll(world: World, *images: str) -> None:
    for image in images:
        world.edit(image)
        world.settle()


def test_a_new_template_gets_the_next_number_and_an_old_one_its_own_revision_back() -> None:
    world = settled()
    (first,) = world.revisions
    roll(world, "agent:2")
    assert world.numbers() == [1, 2]
    roll(world, "agent:1")
    assert world.numbers() == [2, 3]
    assert world.revisions[first]["revision"] == 3


def test_a_revision_holds_the_template_and_the_annotations_of_its_birth() -> None:
    world = World(daemonset(), 0)
    world.body["metadata"]["annotations"][names.CHANGE_CAUSE] = "the first"
    world.settle()
    (body,) = world.revisions.values()
    assert body["data"] == {
        "spec": {"template": {"$patch": "replace", **world.body["spec"]["template"]}}
    }
    assert body["metadata"]["annotations"][names.CHANGE_CAUSE] == "the first"
    assert body["metadata"]["ownerReferences"] == [OWNER]
    assert body["metadata"]["name"] == f"agent-{body['metadata']['labels'][names.REVISION_HASH]}"
    assert body["metadata"]["labels"]["app"] == "agent"


def test_the_first_revision_has_the_commit_that_is_announced_after_its_creation() -> None:
    body, commit = daemonset(), "a" * 40
    stated = {
        names.COMMIT: commit,
        keys.ROLLOUT_POLICY: '{"policy": {"stages": [{"name": "all"}]}}',
    }
    body["metadata"]["annotations"] = stated
    seen = announced_daemonsets.as_announced(daemonsets.daemonset_of(body), (), {})
    assert names.COMMIT not in seen.annotations
    made = history.construct(seen, Claim((), (), ()), None)
    (created,) = (action for action in made.actions if isinstance(action, CreateRevision))
    annotations = created.body["metadata"]["annotations"]
    assert annotations[names.COMMIT] == commit
    assert target_revisions.is_marked(annotations)  # by which `uninstall` finds it


def test_more_old_revisions_than_the_limit_go_oldest_first_but_none_that_a_pod_runs() -> None:
    world = settled(revisionHistoryLimit=1)
    world.body["spec"]["updateStrategy"] = {"type": "OnDelete"}
    roll(world, "agent:2", "agent:3", "agent:4")
    assert world.numbers() == [1, 3, 4] or world.numbers() == [1, 4]
    assert {image for there in world.images().values() for image in there} == {"agent:1"}
    for name in list(world.pods):
        world.vanish(name)
    world.settle()
    assert len(world.numbers()) == 2


def test_the_limit_counts_old_revisions_only() -> None:
    world = settled(revisionHistoryLimit=2)
    roll(world, *(f"agent:{i}" for i in range(2, 7)))
    assert world.numbers() == [4, 5, 6]
    world = settled(revisionHistoryLimit=0)
    roll(world, "agent:2")
    assert world.numbers() == [2]


def test_the_higher_of_two_revisions_with_one_template_stays_and_its_pods_are_relabelled() -> None:
    world = settled()
    roll(world, "agent:2")
    (twin,) = (copy.deepcopy(body) for body in world.revisions.values() if body["revision"] == 2)
    twin["metadata"] |= {
        "name": "twin",
        "uid": "twin",
        "labels": {"app": "agent", names.REVISION_HASH: "twin"},
    }
    world.revisions["twin"] = {**twin, "revision": 5}
    pods = set(world.pods)
    for body in world.pods.values():
        del body["metadata"]["labels"][names.POD_TEMPLATE_GENERATION]
    decision = world.turn()
    assert sum(isinstance(a, RelabelPod) for a in decision.actions) == 2
    world.settle()
    assert world.numbers() == [1, 5]
    assert {pod.hash for pod in world.parsed()} == {"twin"}
    assert set(world.pods) == pods


def test_pods_survive_a_revision_that_was_replaced_by_an_equal_one() -> None:
    world = settled()
    pods = set(world.pods)
    (body,) = world.revisions.values()
    body["metadata"]["labels"][names.REVISION_HASH] = "another"
    assert not world.turn().actions
    assert set(world.pods) == pods


def test_a_revision_without_a_hash_gets_its_name_and_an_orphan_is_adopted() -> None:
    world = settled()
    (body,) = world.revisions.values()
    del body["metadata"]["labels"][names.REVISION_HASH], body["metadata"]["ownerReferences"]
    assert [type(a) for a in world.turn().actions] == [Adopt]
    (label,) = (a for a in world.turn().actions if isinstance(a, LabelRevision))
    assert label.hash == body["metadata"]["name"]
    assert body["metadata"]["ownerReferences"] == [OWNER]


def test_an_api_server_that_stops_writing_null_rolls_nothing() -> None:
    world = World(daemonset(), 2)
    world.body["spec"]["template"]["metadata"]["creationTimestamp"] = None
    world.settle()
    del world.body["spec"]["template"]["metadata"]["creationTimestamp"]
    assert world.turn().actions == ()


def test_nothing_is_pruned_while_the_limit_holds() -> None:
    world = settled()
    roll(world, *(f"agent:{i}" for i in range(2, 12)))
    assert world.numbers() == list(range(1, 12))
    seen = world.observe()
    assert history.prune(seen.daemonset, seen.revisions[:-1], seen.pods) == ()
    assert not any(isinstance(a, DeleteRevision) for a in world.turn().actions)


def test_a_default_of_a_newer_api_server_restarts_no_pod_and_creates_no_revision() -> None:
    world = settled()
    roll(world, "agent:2")
    pods, template = set(world.pods), world.body["spec"]["template"]["spec"]
    template["newInTheNextVersion"] = "its default"
    template["containers"][0]["newAsWell"] = {"seconds": 30}
    world.settle()
    assert set(world.pods) == pods
    assert world.numbers() == [1, 2]
    roll(world, "agent:3")
    assert world.numbers() == [1, 2, 3]


def test_the_manually_deleted_newest_revision_is_created_again_instead_of_an_older_one() -> None:
    world = settled()
    world.body["spec"]["template"]["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/restartedAt": "2027-01-01T00:00:00Z"
    }
    roll(world, "agent:1")
    pods = set(world.pods)
    (newest,) = (name for name, body in world.revisions.items() if body["revision"] == 2)
    for _ in range(2):
        before = world.revisions.pop(newest)
        world.settle()
        assert newest in world.revisions
        assert world.revisions[newest]["data"] == before["data"]
        assert set(world.pods) == pods
    world.nodes = world.nodes[:1]
    world.edit("agent:1")
    # taken up, and no pod rolled yet
    world.body["status"]["observedGeneration"] = world.body["metadata"]["generation"]
    world.body["spec"]["template"]["spec"]["hostNetwork"] = True
    world.settle()
    assert world.numbers() == [1, 2, 3]


def test_a_revision_with_a_finalizer_is_deleted_once_and_neither_counted_nor_current() -> None:
    world = settled(revisionHistoryLimit=1)
    roll(world, "agent:2", "agent:3")
    oldest = min(world.revisions.values(), key=lambda body: body["revision"])
    held = copy.deepcopy(oldest)
    held["metadata"] |= {
        "name": "held",
        "uid": "held",
        "deletionTimestamp": "2027-01-01T00:00:00Z",
        "finalizers": ["example.com/hold"],
    }
    world.revisions["held"] = {**held, "revision": 0}
    assert world.turn().actions == ()
    newest = max(world.revisions.values(), key=lambda body: body["revision"])
    world.revisions["held"] = {**held, "revision": 9, "data": newest["data"]}
    assert world.turn().actions == ()


def test_a_foreign_revision_with_our_name_is_used_until_it_is_deleted() -> None:
    world = World(daemonset(), 2)
    seen = world.observe()
    body = revisions.new(seen.daemonset, 7)
    foreign = revisions.revision_of(
        {
            **body,
            "metadata": {
                **body["metadata"],
                "uid": "x",
                "ownerReferences": [{**OWNER, "uid": "other"}],
            },
        }
    )
    decision = decide.decide(replace(seen, namesake=foreign))
    assert [type(action) for action in decision.actions] == [CreatePod, CreatePod]
    hashes = {
        action.body["metadata"]["labels"][names.REVISION_HASH]
        for action in decision.actions
        if isinstance(action, CreatePod)
    }
    assert hashes == {body["metadata"]["labels"][names.REVISION_HASH]}
    assert foreign is not None
    other = replace(foreign, template={"spec": {}})
    assert CreateRevision in {
        type(action) for action in decide.decide(replace(seen, namesake=other)).actions
    }


def test_an_added_field_is_a_new_template() -> None:
    world = settled()
    world.edit("agent:1")
    world.body["spec"]["template"]["spec"]["hostNetwork"] = True
    world.settle()
    assert world.numbers() == [1, 2]


def test_an_observed_template_that_holds_something_else_is_a_new_template() -> None:
    world = settled()
    world.body["spec"]["template"]["spec"]["containers"][0]["image"] = "agent:2"
    world.settle()
    assert world.numbers() == [1, 2]
