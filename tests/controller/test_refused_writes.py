"""Each write of the controller, refused in each way for an hour: a bounded number of requests a
minute, and all continues after it.

One bound for all: a failed reconciliation is retried after 5 ms, doubled, and watch events retry it
once a second at most; it sends one write that is refused, the reads for it, and the status. Watch
events arrive every 0.2 s here.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.decision import (
    Action,
    Adopt,
    CreatePod,
    CreateRevision,
    DeletePod,
    DeleteRevision,
    LabelRevision,
    NominatePod,
    Powers,
    PromoteRevision,
    RecordRollout,
    RelabelPod,
    Release,
    RenumberRevision,
)
from gitops_ds.core.objects import CONFIG_MAP, CONTROLLER_REVISION, DAEMONSET, POD, Resource
from gitops_ds.core.rollouts.proven_templates import TemplateProof
from gitops_ds.core.rollouts.staged_rollout import RolloutRecord
from gitops_ds.kube.apimachinery import daemonsets, revisions
from gitops_ds.rollouts.state import keys, proofs, target_revisions
from gitops_ds.testing.simulator import faults as simulator_faults
from gitops_ds.testing.simulator.faults import RequestFault, Silence, SimulatedRequest
from tests.daemonset import world
from tests.deploy.rollout_scene import NoRollouts
from tests.simulator.setup import Setup, daemonset, each, set_up

A_MINUTE_AT_MOST, A_QUIET_MINUTE_AT_MOST = 300, 60
NEWS = 1  # minutes of watch events at the beginning and at the end


def _alone(there: Setup) -> None:
    there.begin()


def _beside_another(there: Setup) -> None:
    """Powers pace, and a DaemonSet controller without rollouts that has a client of its own."""
    there.begin(Powers.PACE)
    there.begin(client=there.cluster.client()).observer.rollouts = NoRollouts(
        there.records.append, there.cluster.server.now
    )


@dataclass(frozen=True)
class Case:
    """What makes the controller want the action, and which request it is."""

    wants: Callable[[Setup], Awaitable[None]]
    verb: str
    resource: Resource
    image: str = "agent:1"  # what runs in the end
    begin: Callable[[Setup], None] = _alone
    subresource: str = ""


async def _first(there: Setup, resource: Resource) -> dict[str, Any]:
    items = (await there.people.list(resource)).items
    return dict(min(items, key=lambda body: str(body["metadata"]["name"])))


async def _patch(
    there: Setup, body: dict[str, Any], resource: Resource, metadata: dict[str, Any]
) -> None:
    patch = {"metadata": metadata}
    await there.people.patch(
        resource, "default", body["metadata"]["name"], patch, type=PatchType.MERGE
    )


async def _a_pod_goes(there: Setup) -> None:
    await there.people.delete(POD, "default", (await _first(there, POD))["metadata"]["name"])


async def _the_image_changes(there: Setup) -> None:
    await there.edit("agent:2")


async def _a_pod_is_orphaned(there: Setup) -> None:
    await _patch(there, await _first(there, POD), POD, {"ownerReferences": None})


async def _a_pod_leaves_the_selector(there: Setup) -> None:
    await _patch(there, await _first(there, POD), POD, {"labels": {"app": "other"}})


async def _a_revision_loses_its_hash(there: Setup) -> None:
    await _patch(
        there,
        await _first(there, CONTROLLER_REVISION),
        CONTROLLER_REVISION,
        {"labels": {names.REVISION_HASH: None}},
    )


async def _a_twin_of_the_revision(there: Setup, number: int = 9) -> None:
    owner = daemonsets.daemonset_of(await there.people.get(DAEMONSET, "default", "agent"))
    body = revisions.new(owner, number)
    labels = {**body["metadata"]["labels"], names.REVISION_HASH: "twin"}
    await there.people.create(
        CONTROLLER_REVISION,
        {**body, "metadata": {**body["metadata"], "name": "twin", "labels": labels}},
    )
    await there.people.patch(
        CONTROLLER_REVISION, "default", "twin", {"metadata": {"labels": {"turn": "it"}}}
    )


async def _more_revisions_than_the_limit(there: Setup) -> None:
    await there.people.patch(DAEMONSET, "default", "agent", {"spec": {"revisionHistoryLimit": 0}})
    await there.edit("agent:2")


async def _back_to_the_first_template(there: Setup) -> None:
    there.cluster.faults, faults = simulator_faults.none, there.cluster.faults
    await there.edit("agent:2")
    await asyncio.sleep(60)
    there.cluster.faults = faults
    await there.edit("agent:1")


async def _a_rollout_begins(there: Setup, record: RolloutRecord | None = None) -> None:
    """What the deployer writes for a commit with another image."""
    stages = [{"name": name, "soak": "1s"} for name in ("canary", "rest")]
    policy = {"stages": stages, "limits": {"atRisk": {"cluster": "100%"}}}
    owner = daemonsets.daemonset_of(await there.people.get(DAEMONSET, "default", "agent"))
    template = copy.deepcopy(dict(owner.template))
    template["spec"]["containers"][0]["image"] = "agent:2"
    target = target_revisions.body_of(owner, template, "")
    if record is not None:
        target["metadata"]["annotations"] = {keys.ROLLOUT_RECORD: target_revisions.encoded(record)}
    await there.people.create(CONTROLLER_REVISION, target)
    proof = TemplateProof(proofs.identity(owner.template), "", 0.0)
    annotations = {
        keys.ROLLOUT_POLICY: target_revisions.policy_text(policy, ()),
        keys.PROVEN: proofs.encoded(proof),
        keys.TARGET: target["metadata"]["name"],
    }
    patch = {
        "metadata": {"annotations": annotations},
        "spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}},
    }
    deployer = there.cluster.client(names.FIELD_MANAGER)
    await deployer.patch(DAEMONSET, "default", "agent", patch)


async def _a_rollout_has_passed_its_stages(there: Setup) -> None:
    """The only change of the target revision left is its promotion."""
    await _a_rollout_begins(there, RolloutRecord(began=1.0, passed={"canary": 1.0, "rest": 1.0}))


CASES: dict[type[Action], Case] = {
    CreatePod: Case(_a_pod_goes, "create", POD),
    DeletePod: Case(_the_image_changes, "delete", POD, "agent:2"),
    Adopt: Case(_a_pod_is_orphaned, "patch", POD),
    Release: Case(_a_pod_leaves_the_selector, "patch", POD),
    RelabelPod: Case(_a_twin_of_the_revision, "patch", POD),
    CreateRevision: Case(_the_image_changes, "create", CONTROLLER_REVISION, "agent:2"),
    LabelRevision: Case(_a_revision_loses_its_hash, "patch", CONTROLLER_REVISION),
    RenumberRevision: Case(_back_to_the_first_template, "patch", CONTROLLER_REVISION),
    DeleteRevision: Case(_more_revisions_than_the_limit, "delete", CONTROLLER_REVISION, "agent:2"),
    NominatePod: Case(
        _a_rollout_begins, "patch", POD, "agent:2", _beside_another, subresource="status"
    ),
    RecordRollout: Case(
        _a_rollout_begins, "patch", CONTROLLER_REVISION, "agent:2", _beside_another
    ),
    PromoteRevision: Case(
        _a_rollout_has_passed_its_stages,
        "patch",
        CONTROLLER_REVISION,
        "agent:2",
        _beside_another,
    ),
}
ANSWERS: dict[str, RequestFault] = {
    **{
        str(status): simulator_faults.failure(status)
        for status in (400, 401, 403, 404, 409, 410, 422, 429, 500, 503)
    },
    "exists": errors.AlreadyExists("it exists already", 409, "AlreadyExists"),
    "no answer": Silence(10),
    "no answer, and it was done": Silence(10, done=True),
}


def test_the_table_has_every_action() -> None:
    assert set(CASES) == set(Action.__args__)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("action", "answer"),
    [
        (action, answer)
        for action, case in CASES.items()
        for answer in ANSWERS
        if answer != "exists" or case.verb == "create"
    ],
)
async def test_a_write_that_is_refused_for_an_hour_causes_no_flood(
    action: type[Action], answer: str
) -> None:
    case = CASES[action]

    def refuse(request: SimulatedRequest) -> RequestFault | None:
        expected = (request.verb, request.resource, request.subresource) == (
            case.verb,
            case.resource,
            case.subresource,
        )
        return ANSWERS[answer] if expected else None

    async with set_up(4, daemonset(updateStrategy=world.rolling("100%"))) as there:
        case.begin(there)
        await asyncio.sleep(30)
        there.cluster.faults = refuse
        await case.wants(there)
        async with news(there):
            assert max(await minutes(there, NEWS)) <= A_MINUTE_AT_MOST
        assert max(await minutes(there, 56)) <= A_QUIET_MINUTE_AT_MOST
        async with news(there):
            assert max(await minutes(there, NEWS)) <= A_MINUTE_AT_MOST
            there.cluster.faults = simulator_faults.none
            await asyncio.sleep(60)
        released = 1 if action is Release else 0
        assert sum((await there.pods()).values()) == 4 + released
        assert each(4, case.image).keys() == (await there.pods()).keys()
        assert max(await minutes(there, 2)) <= A_QUIET_MINUTE_AT_MOST


async def _it_leaves_the_selector(there: Setup) -> None:
    await _patch(
        there,
        await _first(there, CONTROLLER_REVISION),
        CONTROLLER_REVISION,
        {"labels": {"app": None}},
    )


async def _it_belongs_to_another_controller(there: Setup) -> None:
    other = await there.people.create(
        CONFIG_MAP, {"metadata": {"name": "other", "namespace": "default"}}
    )
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "other",
        "uid": other["metadata"]["uid"],
        "controller": True,
    }
    await _patch(
        there,
        await _first(there, CONTROLLER_REVISION),
        CONTROLLER_REVISION,
        {"ownerReferences": [reference]},
    )


async def _a_finalizer_holds_it(there: Setup) -> None:
    await _patch(
        there,
        await _first(there, CONTROLLER_REVISION),
        CONTROLLER_REVISION,
        {"finalizers": ["example.com/hold"]},
    )
    await _more_revisions_than_the_limit(there)


async def _it_is_deleted(there: Setup) -> None:
    await there.people.delete(
        CONTROLLER_REVISION,
        "default",
        (await _first(there, CONTROLLER_REVISION))["metadata"]["name"],
    )


@pytest.mark.parametrize(
    "event",
    [
        _it_leaves_the_selector,
        _it_belongs_to_another_controller,
        _a_finalizer_holds_it,
        _it_is_deleted,
    ],
)
async def test_a_conflicting_revision_causes_no_flood_and_restarts_no_pod(
    event: Callable[[Setup], Awaitable[None]],
) -> None:
    async with set_up(3) as there:
        there.begin()
        await asyncio.sleep(30)
        before = {body["metadata"]["uid"] for body in (await there.people.list(POD)).items}
        await event(there)
        await asyncio.sleep(90)
        assert max(await minutes(there, 10)) <= 2
        pods = {body["metadata"]["uid"] for body in (await there.people.list(POD)).items}
        assert pods == before or event is _a_finalizer_holds_it
        name = (await _first(there, CONTROLLER_REVISION))["metadata"]["name"]
        there.cluster.server.delete(CONTROLLER_REVISION, "default", name)
        await there.edit("agent:3")
        await asyncio.sleep(90)
        assert await there.pods() == each(3, "agent:3")
        assert max(await minutes(there, 5)) <= 2


@contextlib.asynccontextmanager
async def news(there: Setup) -> AsyncIterator[None]:
    """A label of the pods changes constantly: without a delay, a reconciliation every 0.2 s."""

    async def come() -> None:
        for number in itertools.count():
            await asyncio.sleep(0.2)
            *_, body = (await there.people.list(POD)).items
            await _patch(there, dict(body), POD, {"labels": {"noise": str(number)}})

    task = asyncio.create_task(come())
    try:
        yield
    finally:
        task.cancel()


async def minutes(there: Setup, number: int) -> list[int]:
    """The requests of the controller in each minute."""
    counts: list[int] = []
    for _ in range(number):
        there.cluster.count.reset()
        await asyncio.sleep(60)
        counts.append(there.cluster.count.total)
    return counts
