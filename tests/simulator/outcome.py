"""Whether a cluster matches its one DaemonSet, by the stored objects, without code of the
controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gitops_ds.core import names
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD, Body
from gitops_ds.testing.simulator.store import ObjectStore
from tests.simulator import observer


def wrong(store: ObjectStore) -> list[str]:
    """The differences from the expected end; empty without one."""
    daemonset = store.get(DAEMONSET, "default", "agent")
    if daemonset is None:
        return ["the DaemonSet is gone"]
    nodes = {body["metadata"]["name"]: observer.fit(body) for body in store.all(NODE)}
    own_pods = store.all(POD)
    return [
        *_pods(daemonset, nodes, own_pods),
        *_history(daemonset, store.all(CONTROLLER_REVISION), own_pods),
        *_status(daemonset, nodes, own_pods),
    ]


def _pods(daemonset: Body, nodes: dict[str, bool], found: Sequence[Body]) -> Iterator[str]:
    """One available pod of the wanted template on each eligible node, and no orphan anywhere."""
    there = Counter(body["spec"].get("nodeName") for body in found)
    yield from (
        f"{there[node]} pods on {node}"
        for node, expected in nodes.items()
        if expected and there[node] != 1
    )
    yield from (
        f"{there[node]} pods on {node}"
        for node, expected in nodes.items()
        if not expected and there[node] > 1
    )
    for body in found:
        metadata, name = body["metadata"], body["metadata"]["name"]
        if body["spec"].get("nodeName") not in nodes:
            yield f"{name} is on no node"
        if [owner["uid"] for owner in metadata.get("ownerReferences") or ()] != [
            daemonset["metadata"]["uid"]
        ]:
            yield f"{name} is not the DaemonSet's"
        if not _ready(body) or "deletionTimestamp" in metadata:
            yield f"{name} is not available"
        if _marks(body) != _marks(daemonset["spec"]["template"]):
            yield f"{name} runs another template: {_marks(body)}"


def _history(daemonset: Body, held: Sequence[Body], found: Sequence[Body]) -> Iterator[str]:
    """One revision of the wanted template, with the highest number; others up to the limit; no
    orphan.
    """
    current = [body for body in held if _template(body) == daemonset["spec"]["template"]]
    numbers = [body["revision"] for body in held]
    if len(current) != 1:
        yield f"{len(current)} revisions hold the template"
    elif current[0]["revision"] != max(numbers):
        yield f"the template's revision has number {current[0]['revision']} of {sorted(numbers)}"
    else:
        hash = current[0]["metadata"]["labels"][names.REVISION_HASH]
        generation = daemonset["metadata"]["annotations"][names.TEMPLATE_GENERATION]
        for body in found:
            labels = body["metadata"]["labels"]
            if (
                labels[names.REVISION_HASH] != hash
                and labels[names.POD_TEMPLATE_GENERATION] != generation
            ):
                yield f"{body['metadata']['name']} names another revision"
    if len(set(numbers)) < len(numbers):
        yield f"revision numbers are not unique: {sorted(numbers)}"
    if len(held) - len(current) > daemonset["spec"]["revisionHistoryLimit"]:
        yield f"{len(held)} revisions are kept"
    for body in held:
        if [owner["uid"] for owner in body["metadata"].get("ownerReferences") or ()] != [
            daemonset["metadata"]["uid"]
        ]:
            yield f"revision {body['metadata']['name']} is not the DaemonSet's"


def _status(daemonset: Body, nodes: dict[str, bool], found: Sequence[Body]) -> Iterator[str]:
    status, desired = daemonset.get("status") or {}, sum(nodes.values())
    expected = {
        "desiredNumberScheduled": desired,
        "currentNumberScheduled": desired,
        "numberReady": desired,
        "updatedNumberScheduled": desired,
        "numberAvailable": desired,
        "numberUnavailable": 0,
        "numberMisscheduled": sum(
            not nodes.get(body["spec"].get("nodeName"), True) for body in found
        ),
        "observedGeneration": daemonset["metadata"]["generation"],
    }
    for field, value in expected.items():
        if status.get(field, 0) != value:
            yield f"the status has {field} {status.get(field)}, not {value}"


def _marks(template: Body) -> tuple[object, ...]:
    """The fields in which the templates of the tests differ."""
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return template["spec"]["containers"][0]["image"], annotations.get(
        "kubectl.kubernetes.io/restartedAt"
    )


def _template(revision: Body) -> Body:
    return {
        key: value for key, value in revision["data"]["spec"]["template"].items() if key != "$patch"
    }


def _ready(pod: Body) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return pod["status"]["phase"] == "Running" and any(
        c["type"] == "Ready" and c["status"] == "True" for c in conditions
    )
