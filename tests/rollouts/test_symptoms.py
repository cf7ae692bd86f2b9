"""The symptoms that others can cause, by the demands of two templates, and their effect among
peers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core.daemonset import Phase, Pod
from gitops_ds.core.rollouts.staged_rollout import NodeProgress, NodeStep
from gitops_ds.kube.apimachinery import pod_demands
from gitops_ds.kube.apimachinery.pod_demands import Demand, Growth
from gitops_ds.rollouts.decisions import failures, symptoms
from gitops_ds.rollouts.decisions.symptoms import PULLING, SCHEDULING, STARTING

TABLE = (*SCHEDULING, *PULLING, *STARTING)
PAGE = Path(__file__).parents[2] / "docs/rollouts.md"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "agent"}},
    "spec": {
        "priorityClassName": "agents",
        "serviceAccountName": "agent",
        "nodeSelector": {"pool": "general"},
        "tolerations": [{"operator": "Exists"}],
        "initContainers": [
            {
                "name": "prepare",
                "image": "example.com/prepare:1",
                "resources": {"requests": {"cpu": "1"}},
            }
        ],
        "containers": [
            {
                "name": "agent",
                "image": "example.com/agent:1",
                "resources": {"requests": {"cpu": "500m", "memory": "64Mi"}},
                "ports": [{"containerPort": 80, "hostPort": 9999}],
                "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "a"}}}],
            }
        ],
        "volumes": [{"name": "data", "configMap": {"name": "data"}}],
    },
}
Change = Callable[[dict[str, Any]], None]


def changed(*changes: Change) -> dict[str, Any]:
    """The template after changes of its spec."""
    template = copy.deepcopy(TEMPLATE)
    for change in changes:
        change(template["spec"])
    return template


def container(**fields: Any) -> Change:
    return lambda spec: spec["containers"][0].update(fields)


def spec(**fields: Any) -> Change:
    return lambda body: body.update(fields)


def requests(**amounts: str) -> Change:
    return container(resources={"requests": {"cpu": "500m", "memory": "64Mi", **amounts}})


def env(**source: Any) -> Change:
    return container(env=[{"name": "A", "valueFrom": source}])


def port(number: int, **more: Any) -> Change:
    return container(ports=[{"containerPort": 80, "hostPort": number, **more}])


def image(name: str) -> Change:
    return container(image=name)


TERM = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
GROWN = [
    (requests(cpu="2"), Demand.REQUESTS),
    (requests(gpu="1"), Demand.REQUESTS),
    (container(resources={"limits": {"cpu": "2"}}), Demand.REQUESTS),
    (spec(overhead={"cpu": "1"}), Demand.REQUESTS),
    (spec(resources={"requests": {"cpu": "3"}}), Demand.REQUESTS),
    (
        lambda body: body["initContainers"][0].update(resources={"requests": {"cpu": "2"}}),
        Demand.REQUESTS,
    ),
    (port(9998), Demand.HOST_PORTS),
    (port(9999, protocol="UDP"), Demand.HOST_PORTS),
    (port(9999, hostIP="10.0.0.1"), Demand.HOST_PORTS),
    (spec(nodeSelector={"pool": "gpu"}), Demand.NODES),
    (
        spec(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": []}]}}}),
        Demand.NODES,
    ),
    (spec(tolerations=[]), Demand.TOLERATIONS),
    (spec(affinity={"podAntiAffinity": {REQUIRED: [TERM]}}), Demand.PEERS),
    (spec(topologySpreadConstraints=[TERM]), Demand.PEERS),
    (spec(volumes=[{"name": "data", "configMap": {"name": "other"}}]), Demand.VOLUMES),
    (spec(resourceClaims=[{"name": "gpu"}]), Demand.CLAIMS),
    (spec(priorityClassName=""), Demand.PRIORITY),
    (spec(priorityClassName="other"), Demand.PRIORITY),
    (spec(preemptionPolicy="Never"), Demand.PRIORITY),
    (spec(schedulerName="other"), Demand.SCHEDULER),
    (spec(schedulingGates=[{"name": "other"}]), Demand.SCHEDULER),
    (spec(runtimeClassName="kata"), Demand.SANDBOX),
    (env(configMapKeyRef={"name": "c", "key": "b"}), Demand.REFERENCES),
    (env(secretKeyRef={"name": "c", "key": "a"}), Demand.REFERENCES),
    (container(envFrom=[{"configMapRef": {"name": "d"}}]), Demand.REFERENCES),
    (image("example.com/agent:2"), Demand.IMAGE),
    (image("example.com/other:1"), Demand.REPOSITORY),
    (image("example.org/agent:1"), Demand.REGISTRY),
    (image("agent:1"), Demand.REGISTRY),
    (spec(imagePullSecrets=[{"name": "pull"}]), Demand.CREDENTIALS),
    (spec(serviceAccountName="other"), Demand.CREDENTIALS),
]


@pytest.mark.parametrize(("change", "demand"), GROWN)
def test_a_demand_that_grew_is_known(change: Change, demand: Demand) -> None:
    assert demand in pod_demands.growth(changed(change), TEMPLATE).demands


def test_each_demand_can_grow() -> None:
    assert {demand for _, demand in GROWN} == set(Demand)


@pytest.mark.parametrize(
    "change",
    [
        requests(cpu="500m"),
        requests(cpu="0.5", memory="65536Ki"),
        requests(cpu="900m"),  # the init container requests more
        requests(memory="1Mi"),
        container(resources={}),
        container(ports=[]),
        spec(volumes=[]),
        container(env=[]),
        spec(priorityClassName="system-node-critical"),
        spec(tolerations=[{"operator": "Exists"}, {"key": "a", "operator": "Exists"}]),
        spec(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}),
        container(args=["--verbose"]),
        container(livenessProbe={"tcpSocket": {"port": 80}}),
        spec(terminationGracePeriodSeconds=5),
    ],
)
def test_a_template_that_demands_no_more_has_no_growth(change: Change) -> None:
    assert pod_demands.growth(changed(change), TEMPLATE).demands == frozenset()


@given(st.lists(st.sampled_from([change for change, _ in GROWN])))
def test_no_template_exceeds_itself(changes: list[Change]) -> None:
    template = changed(*changes)
    growth = pod_demands.growth(template, copy.deepcopy(template))
    assert (growth.demands, growth.requests, growth.images) == (frozenset(),) * 3


def unplaced(message: str) -> Pod:
    """A pod that the scheduler refuses, with its message about all nodes."""
    text = f"0/4 nodes are available: {message}. preemption: 0/4 nodes are available: 1 taint."
    return Pod("a", "b", "c", node="n", trouble="Unschedulable", message=text)


def pulling(message: str, reason: str = "ImagePullBackOff", name: str = "agent:2") -> Pod:
    """A pod on a node that can't pull an image."""
    text = f'container agent: Back-off pulling image "example.com/{name}": ErrImagePull: {message}'
    return Pod("a", "b", "c", node="n", bound=True, trouble=reason, message=text)


def config(message: str) -> Pod:
    return Pod(
        "a", "b", "c", node="n", bound=True, trouble="CreateContainerConfigError", message=message
    )


OTHERS = "3 node(s) didn't satisfy plugin(s) [NodeAffinity]"
NEW = image("example.com/agent:2")
# A pod of an updated image, and the changes of the template for which it is evidence.
SYMPTOMS: list[tuple[Pod, list[Change]]] = [
    (
        unplaced(f"1 node(s) didn't have free ports for the requested pod ports, {OTHERS}"),
        [port(9998), spec(priorityClassName="")],
    ),
    (unplaced(f"1 Insufficient cpu, {OTHERS}"), [requests(cpu="2"), spec(runtimeClassName="a")]),
    (unplaced(f"1 Insufficient example.com/gpu, {OTHERS}"), [requests(**{"example.com/gpu": "1"})]),
    (unplaced(f"1 Too many pods, {OTHERS}"), [spec(priorityClassName="")]),
    (
        unplaced("1 node(s) didn't match pod anti-affinity rules"),
        [spec(affinity={"podAntiAffinity": {REQUIRED: [TERM]}})],
    ),
    (
        unplaced("1 node(s) didn't match pod topology spread constraints"),
        [spec(topologySpreadConstraints=[TERM])],
    ),
    (unplaced("1 node(s) had untolerated taint(s)"), [spec(tolerations=[])]),
    (unplaced("4 node(s) didn't match Pod's node affinity/selector"), [spec(nodeSelector={})]),
    (
        unplaced("1 node(s) had no available volume zone"),
        [spec(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])],
    ),
    (unplaced("1 cannot allocate all claims"), [spec(resourceClaims=[{"name": "gpu"}])]),
    (
        unplaced("a plugin of a company refuses it"),
        [port(9998), requests(cpu="2"), spec(schedulerName="a"), spec(nodeSelector={})],
    ),
    (Pod("a", "b", "c", node="n"), [spec(schedulerName="absent"), spec(nodeSelector={})]),
    (pulling("dial tcp: connection refused"), [image("example.org/agent:2")]),
    (pulling("unexpected status: 503 Service Unavailable"), [image("example.org/agent:2")]),
    (pulling("", "RegistryUnavailable"), [image("example.org/agent:2")]),
    (
        pulling("pull access denied, repository does not exist or may require authorization"),
        [image("example.com/agnet:2"), spec(imagePullSecrets=[{"name": "absent"}])],
    ),
    (config('configmap "c" not found'), [env(configMapKeyRef={"name": "d", "key": "a"})]),
    (
        config("couldn't find key a in ConfigMap default/c"),
        [env(configMapKeyRef={"name": "c", "key": "b"})],
    ),
    (
        Pod("a", "b", "c", node="n", bound=True, unprepared=True),
        [spec(volumes=[{"name": "data", "secret": {"secretName": "absent"}}])],
    ),
]


@pytest.mark.parametrize(("pod", "grown"), SYMPTOMS)
def test_a_symptom_is_evidence_only_if_its_demand_grew(pod: Pod, grown: list[Change]) -> None:
    assert symptoms.cause(pod, pod_demands.growth(changed(NEW), TEMPLATE))
    for change in grown:
        growth = pod_demands.growth(changed(NEW, change), TEMPLATE)
        assert not symptoms.cause(pod, growth), growth


@pytest.mark.parametrize(("pod", "grown"), SYMPTOMS)
def test_nothing_is_evidence_against_a_template_without_a_proven_one(
    pod: Pod, grown: list[Change]
) -> None:
    assert symptoms.cause(pod, Growth())


def test_growth_of_another_resource_does_not_count() -> None:
    growth = pod_demands.growth(changed(requests(memory="1Gi")), TEMPLATE)
    assert symptoms.cause(unplaced("1 Insufficient cpu"), growth)
    assert not symptoms.cause(unplaced("1 Insufficient cpu, 1 Insufficient memory"), growth)


@pytest.mark.parametrize(
    ("pod", "evidence"),
    [
        (pulling("agent:2: not found"), True),
        (pulling("manifest unknown"), True),
        (pulling("some other words"), True),
        (pulling("prepare:1: not found", name="prepare:1"), False),  # of an image that both have
        (pulling("some other words", name="prepare:1"), False),
        (pulling("not found", name="timeout-503:2"), True),
    ],
)
def test_an_image_that_does_not_exist_is_evidence_if_it_is_new(pod: Pod, evidence: bool) -> None:
    new = pod.message.split('"')[1]
    change = NEW if new.endswith("prepare:1") else image(new)
    growth = pod_demands.growth(changed(change), TEMPLATE)
    assert bool(symptoms.cause(pod, growth)) is not evidence


def test_a_registry_that_denies_the_proven_template_too_is_at_fault() -> None:
    growth = pod_demands.growth(changed(image("example.com/other:2")), TEMPLATE)
    pod = pulling("403 forbidden", name="other:2")
    assert not symptoms.cause(pod, growth)
    proven = pulling("403 forbidden", name="agent:1")
    assert symptoms.denied(proven) == {"example.com"}
    assert symptoms.cause(pod, growth, symptoms.denied(proven))
    assert not symptoms.denied(pulling("not found"))


@pytest.mark.parametrize(
    "pod",
    [
        Pod("a", "b", "c", bound=True, trouble="CrashLoopBackOff"),
        Pod("a", "b", "c", bound=True, trouble="CreateContainerError", message="not found"),
        Pod("a", "b", "c", bound=True, trouble="InvalidImageName"),
        config("container has runAsNonRoot and image will run as root"),
        Pod("a", "b", "c", bound=True),
        Pod("a", "b", "c", bound=True, unprepared=True, trouble="CrashLoopBackOff"),
        Pod("a", "b", "c", phase=Phase.FAILED),
        Pod("a", "b", "c", waits=True),
    ],
)
def test_any_other_failure_is_the_template_s(pod: Pod) -> None:
    assert symptoms.cause(pod, Growth()) == ""


def rows() -> list[str]:
    """The table of docs/rollouts.md."""
    words = {one: ", ".join(sorted(demand.value for demand in one.demands)) for one in TABLE}
    words[SCHEDULING[-1]] = f"each of the above, {Demand.SCHEDULER.value}"
    return [f"| {one.name} | {words[one]} | {one.cause} |" for one in TABLE]


def test_the_page_has_each_symptom_with_its_demands_and_its_cause() -> None:
    text = PAGE.read_text()
    assert [row for row in rows() if row not in text] == []


def test_each_symptom_of_the_table_is_named_and_has_a_demand_and_a_cause() -> None:
    assert len({one.name for one in TABLE}) == len(TABLE)
    assert all(one.demands and one.cause for one in TABLE)


LETTERS = {
    "F": (NodeStep.FAILED, "CrashLoopBackOff", ""),
    "X": (NodeStep.FAILED, "Unschedulable", "other pods"),
    "S": (NodeStep.SET_ASIDE, "Unschedulable", "other pods"),
    "W": (NodeStep.WAITING, "", ""),
    "P": (NodeStep.PROVED, "", ""),
    "A": (NodeStep.STARTING, "", ""),
}


def fleet(canary: str, rest: str) -> dict[str, NodeProgress]:
    nodes = {}
    for stage, letters in (("canary", canary), ("rest", rest)):
        for number, letter in enumerate(letters):
            step, reason, cause = LETTERS[letter]
            name = f"{stage}-{number}"
            nodes[name] = NodeProgress(name, stage, step, reason, cause=cause)
    return nodes


@pytest.mark.parametrize(
    ("canary", "rest", "held"),
    [
        ("X", "WWW", "canary-0"),
        ("XP", "WWW", ""),
        ("XA", "WWW", "canary-0"),
        ("XW", "WWW", "canary-0"),  # no other node is touched to decide
        ("XXP", "WWW", "canary-0 canary-1"),
        ("PPP", "XWW", ""),
        ("PPP", "XXW", "rest-0 rest-1"),
    ],
)
def test_a_failure_that_others_cause_holds_where_it_would_halt(
    canary: str, rest: str, held: str
) -> None:
    found = failures.attributed(fleet(canary, rest), lambda _: "linux/amd64")
    assert found.held == set(held.split())
    assert not found.template | found.suspected | found.alone


@given(st.text("FXWPA", max_size=5), st.text("FXWPA", max_size=5))
def test_a_failure_that_others_cause_counts_for_no_node(canary: str, rest: str) -> None:
    found = failures.attributed(fleet(canary, rest), lambda _: "linux/amd64")
    without = fleet(canary.replace("X", "S"), rest.replace("X", "S"))
    judged = failures.attributed(without, lambda _: "linux/amd64")
    nodes = fleet(canary, rest)
    caused = {name for name, one in nodes.items() if one.cause}
    assert not caused & (found.template | found.suspected | found.alone)
    assert found.held <= caused
    assert (found.template, found.suspected, found.alone) == (
        judged.template,
        judged.suspected,
        judged.alone,
    )
    assert all(found.nodes[name].step is NodeStep.SET_ASIDE for name in caused)
