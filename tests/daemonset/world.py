"""A world of plain dictionaries that executes decisions: without clock, API server and
randomness.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any

import orjson

from gitops_ds.core import names
from gitops_ds.core.daemonset import Pod
from gitops_ds.core.decision import (
    Action,
    Adopt,
    CreatePod,
    CreateRevision,
    Decision,
    DeletePod,
    DeleteRevision,
    LabelRevision,
    NominatePod,
    Observation,
    PodMark,
    PromoteRevision,
    RecordRollout,
    RelabelPod,
    Release,
    RenumberRevision,
)
from gitops_ds.core.live import Node
from gitops_ds.core.objects import POD
from gitops_ds.daemonset import decide
from gitops_ds.kube.apimachinery import daemonsets, nodes, pods, revisions, timestamps
from gitops_ds.rollouts.state import keys

START = 1_800_000_000.0
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "name": "agent",
    "uid": "ds-uid",
    "controller": True,
    "blockOwnerDeletion": True,
}


def node(
    name: str,
    labels: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    ready: bool = True,
) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": taints or []},
        "status": {"conditions": conditions},
    }


def daemonset(image: str = "agent:1", **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "agent", "image": image}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": "agent",
            "namespace": "logging",
            "uid": "ds-uid",
            "resourceVersion": "1",
            "generation": 1,
            "annotations": {names.TEMPLATE_GENERATION: "1"},
        },
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template, **spec},
    }


def rolling(max_unavailable: int | str = 1, max_surge: int | str = 0) -> dict[str, Any]:
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": max_unavailable, "maxSurge": max_surge},
    }


# A world is observed several times in each round, and few of its objects change in one.
@lru_cache(8192)
def _node(text: bytes) -> Node:
    return nodes.node_of(orjson.loads(text))


@lru_cache(8192)
def _pod(text: bytes) -> Pod:
    return pods.pod_of(orjson.loads(text))


def pod_of(body: dict[str, Any]) -> Pod:
    """The pod; equal bodies are read once."""
    return _pod(orjson.dumps(body))


class World:
    """Objects, and their changes between the turns."""

    def __init__(self, body: dict[str, Any], nodes: list[dict[str, Any]] | int) -> None:
        self.now = START
        self.body = body
        self.nodes = [node(f"node-{i}") for i in range(nodes)] if isinstance(nodes, int) else nodes
        self.pods: dict[str, dict[str, Any]] = {}
        self.revisions: dict[str, dict[str, Any]] = {}
        self.backoffs: dict[str, Any] = {}
        self.vanished: dict[str, str] = {}
        self.own_node = ""
        self.bad_images: set[str] = set()
        self.slow_nodes: set[str] = set()
        self._made = 0

    # The view and the actions of the controller

    def observe(self) -> Observation:
        revision = (revisions.revision_of(body) for body in self.revisions.values())
        return Observation(
            now=self.now,
            daemonset=daemonsets.daemonset_of(self.body),
            nodes=tuple(
                sorted(
                    (_node(orjson.dumps(body)) for body in self.nodes), key=lambda node: node.name
                )
            ),
            pods=tuple(sorted(self.parsed(), key=lambda pod: pod.name)),
            revisions=tuple(
                sorted((r for r in revision if r is not None), key=lambda r: (r.number, r.name))
            ),
            backoffs=dict(self.backoffs),
            vanished=dict(self.vanished),
            own_node=self.own_node,
        )

    def turn(self, at_most: int | None = None) -> Decision:
        """One turn; with `at_most`, only so many actions are performed and then the controller
        crashes.
        """
        decision = decide.decide(self.observe())
        for action in decision.actions[:at_most]:
            self.perform(action)
        if at_most is not None and at_most < len(decision.actions):
            self.backoffs, self.vanished = {}, {}
            return decision
        self.backoffs.update(decision.backoffs)
        if decision.status is not None:
            counters = daemonsets.counters(decision.status.counts)
            self.body["status"] = {
                **counters,
                "observedGeneration": decision.status.observed_generation,
            }
        return decision

    def perform(self, action: Action) -> None:
        match action:
            case CreatePod(body=body, after=after):
                assert body["metadata"]["name"] not in self.pods, "a name was used twice"
                self._mark(*after)
                self.add_pod(copy.deepcopy(dict(body)))
            case DeletePod(key=key, uid=uid, mark=mark):
                assert self.pods[key.name]["metadata"]["uid"] == uid
                self._mark(*filter(None, [mark]))
                self.pods[key.name]["metadata"]["deletionTimestamp"] = timestamps.text(self.now)
            case RelabelPod(key=key, hash=hash) | LabelRevision(key=key, hash=hash):
                labels = self._object(key.kind, key.name)["metadata"].setdefault("labels", {})
                labels[names.REVISION_HASH] = hash
            case Adopt(key=key):
                self._object(key.kind, key.name)["metadata"]["ownerReferences"] = [OWNER]
            case Release(key=key):
                del self._object(key.kind, key.name)["metadata"]["ownerReferences"]
            case CreateRevision(key=key, body=body):
                assert key.name not in self.revisions
                self.revisions[key.name] = self._born(copy.deepcopy(dict(body)))
            case RenumberRevision(key=key, number=number):
                self.revisions[key.name]["revision"] = number
            case DeleteRevision(key=key):
                del self.revisions[key.name]
            case NominatePod(key=key, node=node):
                self.pods[key.name].setdefault("status", {})["nominatedNodeName"] = node
            case RecordRollout(key=key, record=record, annotation=annotation):
                metadata = self.revisions[key.name]["metadata"]
                metadata.setdefault("annotations", {})[annotation] = record
            case PromoteRevision(key=key, labels=labels, proof=proof):
                metadata = self.revisions[key.name]["metadata"]
                if proof:
                    metadata.setdefault("annotations", {})[keys.PROOF] = proof
                metadata["labels"] = dict(labels)
                metadata["ownerReferences"] = [OWNER]

    def _mark(self, *marks: PodMark) -> None:
        for mark in marks:
            self.pods[mark.key.name]["metadata"]["labels"][names.REPLACED] = mark.daemonset

    def waits(self, pod: dict[str, Any]) -> bool:
        """Whether the scheduler keeps a pod from its node, by its anti-affinity."""
        apart = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
        terms = apart.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        wanted = [set(term["labelSelector"]["matchLabels"].items()) for term in terms]
        return any(
            labels <= set(other["metadata"]["labels"].items())
            for labels in wanted
            for other in self.pods.values()
            if other["spec"].get("nodeName") == pod_of(pod).node
        )

    def settle(self, turns: int = 200) -> None:
        """Turns and kubelets until there is no further change."""
        for _ in range(turns):
            if not self.turn().actions and not self.kubelets():
                return
        raise AssertionError(
            f"not settled after {turns} turns: {decide.decide(self.observe()).actions}"
        )

    # Other changes

    def kubelets(self) -> bool:
        """Pods that are ending vanish, the others start and get ready; returns whether anything
        moved.
        """
        moved = False
        self.now += 1
        for name, pod in list(self.pods.items()):
            if "deletionTimestamp" in pod["metadata"]:
                self.vanish(name)
                moved = True
            elif (
                "phase" not in pod.get("status", {})
                and not self.waits(pod)
                and pod_of(pod).node not in self.slow_nodes
            ):
                moved = True
                image = pod["spec"]["containers"][0]["image"]
                self.start(pod, ready=image not in self.bad_images)
        return moved

    def start(self, pod: dict[str, Any], ready: bool = True) -> None:
        pod["spec"]["nodeName"] = pod_of(pod).node
        condition = {
            "type": "Ready",
            "status": str(ready),
            "lastTransitionTime": timestamps.text(self.now),
        }
        scheduled = {**condition, "type": "PodScheduled", "status": "True"}
        earlier = (pod.get("status") or {}).get("conditions") or ()
        bound = [one for one in earlier if one["type"] == "PodScheduled"]
        conditions = [condition, *(bound or [scheduled])]
        pod["status"] = {"phase": "Running" if ready else "Pending", "conditions": conditions}
        if not ready:
            waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
            pod["status"]["containerStatuses"] = [{"name": "agent", "state": {"waiting": waiting}}]

    def vanish(self, name: str) -> None:
        pod = pod_of(self.pods.pop(name))
        self.vanished[pod.node] = pod.uid

    def add_pod(self, body: dict[str, Any]) -> dict[str, Any]:
        body = self._born(body)
        self.pods[body["metadata"]["name"]] = body
        return body

    def existing(
        self,
        name: str,
        on: str,
        *,
        owned: bool = True,
        labels: dict[str, str] | None = None,
        **status: Any,
    ) -> dict[str, Any]:
        """An earlier pod of another owner, on that node."""
        metadata = {
            "name": name,
            "namespace": "logging",
            "labels": {"app": "agent"} if labels is None else labels,
        }
        owner = {"ownerReferences": [OWNER]} if owned else {}
        spec = {"nodeName": on, "containers": [{"name": "agent", "image": "agent:0"}]}
        status = {"phase": "Running", **status}
        return self.add_pod(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**metadata, **owner},
                "spec": spec,
                "status": status,
            }
        )

    def edit(self, image: str) -> None:
        """A new template, as an API server takes it."""
        self.body = copy.deepcopy(self.body)
        self.body["spec"]["template"]["spec"]["containers"][0]["image"] = image
        metadata = self.body["metadata"]
        metadata["generation"] += 1
        metadata["annotations"][names.TEMPLATE_GENERATION] = str(
            int(metadata["annotations"][names.TEMPLATE_GENERATION]) + 1
        )

    # Queries

    def parsed(self) -> list[Pod]:
        return [pod_of(body) for body in self.pods.values()]

    def images(self) -> dict[str, list[str]]:
        """By node, the images of its pods that are not ending."""
        result: dict[str, list[str]] = {}
        for body in self.pods.values():
            if "deletionTimestamp" not in body["metadata"]:
                result.setdefault(pod_of(body).node, []).append(
                    body["spec"]["containers"][0]["image"]
                )
        return {name: sorted(images) for name, images in sorted(result.items())}

    def available(self) -> int:
        seconds = self.body["spec"].get("minReadySeconds", 0)
        return len(
            {
                pod.node
                for pod in self.parsed()
                if not pod.terminating and pod.available(seconds, self.now)
            }
        )

    def numbers(self) -> list[int]:
        return sorted(body["revision"] for body in self.revisions.values())

    def _object(self, kind: str, name: str) -> dict[str, Any]:
        return (self.pods if kind == POD.kind else self.revisions)[name]

    def _born(self, body: dict[str, Any]) -> dict[str, Any]:
        self._made += 1
        body["metadata"]["uid"] = f"uid-{self._made}"
        body["metadata"]["creationTimestamp"] = timestamps.text(self.now)
        return body
