"""Kubernetes events reach the API server, also beside thousands of others."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import Selection
from gitops_ds.core.decision import CreatePod
from gitops_ds.core.events.base import ActionFailed, Performed
from gitops_ds.core.objects import EVENT, NAMESPACE
from gitops_ds.notify.kube_events import EventRecorder, InvolvedObject
from gitops_ds.service.kube_event_writer import KubeEventWriter
from tests.contract.scenes import Stage, eventually
from tests.report import events

pytestmark = pytest.mark.usefixtures("play")

NODES = 1000
STATE = "gitops-ds-test"
NAMES = {"node", STATE} | {key.name for key in (events.AGENT, events.SECRET, events.POD)}


async def _is_empty(writer: KubeEventWriter) -> bool:
    return writer._queue.empty()


@pytest.mark.parametrize("of_pods", [False, True], ids=["pace", "full"])
async def test_after_a_rollout_of_a_thousand_nodes_every_class_of_events_is_in_the_cluster(
    stage: Stage, /, of_pods: bool
) -> None:
    state = InvolvedObject("v1", "ConfigMap", stage.namespace, STATE)
    for name in {key.namespace for key in (events.AGENT, events.SECRET, events.POD)}:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        with contextlib.suppress(errors.AlreadyExists):  # of another scene
            await stage.cluster.create(NAMESPACE, body)
    writer = KubeEventWriter(stage.cluster, state, of_pods=of_pods)
    writing = asyncio.create_task(writer.run())
    for number in range(NODES):
        action = CreatePod(f"node-{number}", {}, "", "its node is updated")
        writer.handle(Performed(1.0, events.AGENT, action, events.AGENT))
        writer.handle(ActionFailed(1.0, events.AGENT, action, errors.ClusterError("denied")))
    expected = set()
    for kind in events.concrete():
        for sample in events.samples(kind):
            expected |= {
                (event.reason, event.about.name)
                for event in EventRecorder(state, of_pods).kube_events(sample)
                if event.about.name in NAMES
            }
            writer.handle(sample)
        await eventually(lambda: _is_empty(writer))

    async def is_written() -> bool:
        listed = (await stage.cluster.list(EVENT, Selection())).items
        return expected <= {(body["reason"], body["involvedObject"]["name"]) for body in listed}

    assert len({reason for reason, _ in expected}) > 30
    await eventually(is_written)
    writing.cancel()
