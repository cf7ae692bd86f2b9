"""For which agents a node waits, and when it no longer does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gitops_ds.core import names
from gitops_ds.core.daemonset import Owner, Phase, Pod, PodCause
from gitops_ds.core.live import Taint
from gitops_ds.core.startup_taints import OWN
from gitops_ds.startup_taints import node_waits
from gitops_ds.startup_taints.node_waits import NodeState, Surroundings
from gitops_ds.startup_taints.required_agents import PodTemplates, RequiredAgent
from tests.startup_taints.plain import (
    CILIUM,
    GPU,
    POLICY,
    START,
    agent,
    node,
    pod,
    state,
    templates,
)

STAGED = templates("1", pinned="2")
HALTED = templates("1", note="its rollout is halted: bad", stuck=True)
SUSPENDED = templates(note="it is suspended", stuck=True)
PINNED = {names.ROLLOUT: "2"}


def reasons(state: NodeState) -> list[str]:
    return [wait.reason for wait in state.waits]


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([pod()], []),
        ([], ["NoPod"]),
        ([pod(ready=False, ready_since=None)], ["Starting"]),
        ([pod(ready=False)], ["NotReady"]),
        ([pod(ready=False, trouble="ErrImagePull", reason="ErrImagePull")], ["ErrImagePull"]),
        ([pod(terminating=True)], ["NoPod"]),
        ([pod(phase=Phase.FAILED)], ["NoPod"]),
        ([pod(ready=False), pod()], []),
        ([pod("other")], ["NoPod"]),
    ],
)
def test_a_node_waits_until_a_pod_of_the_agent_is_ready(
    pods: list[Pod], expected: list[str]
) -> None:
    assert reasons(state(node(), *pods)) == expected


def test_pods_of_others_do_not_count() -> None:
    orphan = Pod("agents", "x", "x", node="n1", owner=None, ready=True, ready_since=START + 15)
    other = Pod("agents", "y", "y", node="n1", owner=Owner("ReplicaSet", "a", "z"), ready=True)
    assert reasons(state(node(), orphan, other)) == ["NoPod"]


def test_a_pod_of_another_namespace_does_not_count() -> None:
    copied = msgspec.structs.replace(pod(), namespace="elsewhere")
    assert reasons(state(node(), copied)) == ["NoPod"]


def test_a_pod_counts_after_min_ready_seconds() -> None:
    (wait,) = state(node(), pod(), agents=(agent(min_ready=60),)).waits
    assert (wait.reason, wait.until) == ("MinReadySeconds", START + 75)
    assert state(node(), pod(), agents=(agent(min_ready=60),)).wake_at == START + 75
    assert state(node(), pod(), agents=(agent(min_ready=60),), after=75).is_released


def test_the_node_waits_for_each_of_its_agents() -> None:
    agents = (agent("a"), agent("b"), agent("c"))
    assert [w.agent.name for w in state(node(), pod("b"), agents=agents).waits] == ["a", "c"]


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"pool": "gpu"}},
        {"nodeName": "n2"},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
                        ]
                    }
                }
            }
        },
    ],
)
def test_an_agent_that_does_not_select_the_node_is_not_waited_for(spec: dict[str, Any]) -> None:
    assert state(node(), agents=(agent(**spec),)).is_released


def test_another_taint_that_the_agent_does_not_tolerate_excludes_it() -> None:
    tolerates = [{"key": OWN.key, "operator": "Exists"}]
    careful = agent(tolerations=tolerates)
    assert state(node("n1", OWN, GPU), agents=(careful,)).is_released
    assert reasons(state(node("n1", OWN), agents=(careful,))) == ["NoPod"]


@pytest.mark.parametrize(
    "passing",
    [
        Taint("node.kubernetes.io/not-ready", "NoSchedule"),
        Taint("node.kubernetes.io/network-unavailable", "NoSchedule"),
        Taint("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule", "true"),
        Taint("karpenter.sh/unregistered", "NoExecute"),
    ],
    ids=lambda one: one.key,
)
def test_a_taint_of_kubernetes_that_passes_excludes_no_agent(passing: Taint) -> None:
    """The node is ready before it is removed, and its agents only start then."""
    careful = agent(tolerations=[{"key": OWN.key, "operator": "Exists"}])
    for taints in ((OWN, passing), (passing, OWN)):
        shown = state(node("n1", *taints), agents=(careful,), after=299)
        (wait,) = shown.waits
        assert wait.text.endswith(f"do not tolerate {passing.key}:{passing.effect}")
        assert state(node("n1", *taints), agents=(careful,), after=300).is_released


@pytest.mark.parametrize(
    ("taints", "indexes"),
    [
        ((OWN,), (0,)),
        ((GPU, OWN), (1,)),
        ((OWN, GPU, CILIUM), (0, 2)),
        ((Taint(OWN.key, "NoExecute"),), ()),
        ((Taint(OWN.key, OWN.effect, "value"),), (0,)),
        ((GPU,), ()),
    ],
)
def test_only_our_taint_and_those_of_the_settings_are_removed(
    taints: tuple[Taint, ...], indexes: tuple[int, ...]
) -> None:
    assert state(node("n1", *taints), pod()).taints == indexes


# The table of docs/guides/startup-taints.md: what a node waits for, and for how long.
@pytest.mark.parametrize(
    ("agents", "pods"),
    [
        ((agent(templates=SUSPENDED),), ()),
        ((agent(templates=HALTED),), (pod(hash="2"),)),
        ((agent(templates=HALTED),), (pod(ready=False),)),
        ((agent(),), (pod(ready=False, trouble="Unschedulable", reason="Unschedulable"),)),
        ((agent(tolerations=[]),), ()),
    ],
    ids=["suspended", "halted template", "halted", "does not fit", "does not tolerate the taint"],
)
def test_an_agent_that_only_a_person_can_help_is_waited_for_a_limited_time(
    agents: tuple[RequiredAgent, ...], pods: tuple[Pod, ...]
) -> None:
    early = state(node(), *pods, agents=agents, after=299)
    assert not early.is_released
    assert early.wake_at == START + 300
    late = state(node(), *pods, agents=agents, after=310)
    assert late.is_released
    assert len(late.given_up) == 1
    assert late.wake_at is None


def test_the_limit_begins_when_the_agent_became_stuck() -> None:
    """Also on a node that waited for long before, for another agent."""
    lately = pod(ready=False, trouble="Unschedulable", created=START + 1000)
    missing = msgspec.structs.replace(
        agent(templates=PodTemplates(note="not applied", stuck=True)), since=START + 1000
    )
    for pods, agents in (((lately,), (agent(),)), ((), (missing,))):
        early = state(node(), *pods, agents=agents, after=1299)
        assert not early.is_released
        assert early.wake_at == START + 1300
        assert state(node(), *pods, agents=agents, after=1300).is_released


def test_a_node_whose_clock_is_ahead_waits_as_any_other() -> None:
    suspended = (agent(templates=SUSPENDED),)
    ahead = node(ready_since=START + 86_400)
    assert state(ahead, agents=suspended, after=299).since == START
    assert state(ahead, agents=suspended, after=300).is_released


def test_a_node_that_is_tainted_again_waits_from_then_on() -> None:
    agents = (agent(templates=SUSPENDED),)

    def after(seconds: float) -> NodeState:
        around = Surroundings(POLICY, agents, START + seconds)
        return node_waits.state_of(node(), [], around, START + 1000)

    assert after(1299).since == START + 1000
    assert not after(1299).is_released
    assert after(1300).is_released


@pytest.mark.parametrize(
    "pods",
    [
        (),
        (pod(ready=False, trouble="CrashLoopBackOff", reason="CrashLoopBackOff"),),
        (pod(ready=False, ready_since=None),),
    ],
)
def test_any_other_agent_is_waited_for_without_a_limit(pods: tuple[Pod, ...]) -> None:
    late = state(node(), *pods, after=100_000)
    assert not late.is_released
    assert late.wait is not None
    assert late.wait.since == START


def test_a_suspended_agent_with_a_ready_pod_counts() -> None:
    suspended = agent(templates=SUSPENDED)
    assert state(node(), pod(), agents=(suspended,)).is_released


@pytest.mark.parametrize(
    ("counted", "hash", "released"),
    [
        (STAGED, "1", True),
        (STAGED, "2", True),
        (STAGED, "3", False),
        (HALTED, "1", True),
        (HALTED, "2", False),
        (templates(), "3", True),
    ],
)
def test_only_pods_of_the_proven_template_or_of_an_opened_stage_count(
    counted: PodTemplates, hash: str, released: bool
) -> None:
    shown = state(node(), pod(hash=hash, labels=PINNED), agents=(agent(templates=counted),))
    assert shown.is_released is released
    assert reasons(shown) == ([] if released else ["Template"])


def test_a_node_that_is_not_ready_gets_no_work_and_is_not_given_up() -> None:
    shown = state(node(ready=False), pod())
    assert not shown.is_released
    assert shown.wait is not None
    assert shown.wait.text == "the node is not ready"


def test_a_cordoned_node_is_released_like_any_other() -> None:
    assert state(node(unschedulable=True), pod()).is_released
    assert not state(node(unschedulable=True)).is_released


def test_a_node_that_is_being_deleted_is_left_alone() -> None:
    shown = state(node(deleting=True), pod())
    assert (shown.is_released, shown.wait) == (False, None)


def test_the_pod_of_an_earlier_node_of_the_same_name_counts_only_after_it_was_verified() -> None:
    old = pod(created=START - 500, ready_since=START - 400)
    (wait,) = state(node(), old, after=5).waits
    assert (wait.reason, wait.until) == ("OlderPod", START + 90)
    assert state(node(), old, after=90).is_released
    assert state(node(), pod(created=START - 500, ready_since=START + 1), after=5).is_released
    assert state(node(), pod(created=START, ready_since=START - 30), after=5).is_released
    ahead = pod(created=START - 500, ready_since=START + 3600)
    assert reasons(state(node(), ahead, after=5)) == ["OlderPod"]


def test_the_cause_is_in_the_words_of_the_newest_warning() -> None:
    unready = pod(ready=False)
    warnings = {unready.uid: PodCause("Unhealthy", "Readiness probe failed: HTTP 500")}
    around = Surroundings(POLICY, (agent(),), START + 60, warnings)
    wait = node_waits.state_of(node(), [unready], around).wait
    assert wait is not None
    assert wait.text == "agents/a: Unhealthy: Readiness probe failed: HTTP 500"
