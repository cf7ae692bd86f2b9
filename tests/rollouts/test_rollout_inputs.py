"""The inputs of a rollout beside pods and nodes: other agents, approvals, and the target's
selectors.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.decision import DeletePod, RecordRollout
from gitops_ds.core.rollouts.rollout_policy import After
from gitops_ds.core.rollouts.staged_rollout import (
    RECORD,
    Halt,
    HoldKind,
    NodeStep,
    RolloutTarget,
    StageInputs,
    StageState,
)
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide
from gitops_ds.kube.apimachinery import daemonsets, revisions
from gitops_ds.rollouts.decisions import rollout_holds, stage_inputs
from gitops_ds.rollouts.decisions.failures import AttributedNodes
from gitops_ds.rollouts.decisions.staged_nodes import StagedNodes
from gitops_ds.rollouts.inputs.rollout_memory import RolloutMemory, RolloutSources
from gitops_ds.rollouts.state import keys, rollout_annotations, target_revisions
from gitops_ds.rollouts.state.daemonset_statements import RolloutPhase
from tests.daemonset.world import World, daemonset, node
from tests.rollouts.rollout_world import SECOND, RolloutWorld, both
from tests.rollouts.test_stages import FAST

AFTER = (After("cni"),)


def earlier(nodes: int = 4) -> World:
    """Another agent, whose pods run on all nodes."""
    world = World(daemonset(updateStrategy={"type": "OnDelete"}), nodes)
    world.body["metadata"]["annotations"][names.PATH] = "agents/cni/daemonset.yaml"
    world.settle()
    return world


def test_an_agent_that_is_up_to_date_is_not_behind() -> None:
    assert stage_inputs.behind(AFTER, [earlier().observe()]) == {}


def test_an_agent_is_behind_where_its_pods_run_an_earlier_template_or_are_not_ready() -> None:
    world = earlier()
    world.edit("agent:2")
    world.turn()
    assert stage_inputs.behind(AFTER, [world.observe()]) == {
        "cni": frozenset(f"node-{n}" for n in range(4))
    }
    world = earlier()
    world.start(next(iter(world.pods.values())), ready=False)
    assert len(stage_inputs.behind(AFTER, [world.observe()])["cni"]) == 1


def test_a_node_that_is_not_ready_holds_no_other_agent_up() -> None:
    world = earlier()
    world.edit("agent:2")
    world.turn()
    world.nodes[0]["status"]["conditions"][0]["status"] = "False"
    assert "node-0" not in stage_inputs.behind(AFTER, [world.observe()])["cni"]


def test_an_agent_in_a_staged_rollout_is_behind_where_its_target_does_not_run() -> None:
    world = RolloutWorld(FAST, 10)
    world.body["metadata"]["annotations"][names.PATH] = "agents/cni/daemonset.yaml"
    world.canary()
    world.pass_time()
    behind = stage_inputs.behind(AFTER, [world.observe()])["cni"]
    assert behind == {f"node-{n:03}" for n in range(10)} - world.on(SECOND)


def edited(world: RolloutWorld, **annotations: str) -> StageInputs:
    """The inputs after a person wrote annotations of the deployer, or an earlier copy of them."""
    metadata = world.body["metadata"]
    ours = target_revisions.policy_text(FAST, ())
    metadata["annotations"] = {keys.ROLLOUT_POLICY: ours, **metadata["annotations"]}
    owners = {"kubectl-replace": annotations, names.FIELD_MANAGER: metadata["annotations"]}
    metadata["managedFields"] = [
        {
            "manager": manager,
            "operation": "Update" if manager.startswith("kubectl") else "Apply",
            "fieldsV1": {
                "f:metadata": {
                    "f:annotations": {
                        f"f:{name}": {}
                        for name in written
                        if written is annotations or name not in annotations
                    }
                }
            },
        }
        for manager, written in owners.items()
    ]
    metadata["annotations"] |= annotations
    inputs = stage_inputs.observed(world.observe())
    assert inputs is not None
    return inputs


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"spec": {"selector": {}}},
        {"revisions": None},
    ],
)
def test_a_daemonset_that_is_deleted_or_has_no_selector_or_no_known_target_has_no_rollout(
    change: dict[str, Any],
) -> None:
    world = RolloutWorld(FAST, 6)
    edited(world)
    world.commit(SECOND)
    assert stage_inputs.observed(world.observe()) is not None
    for part, fields in change.items():
        if part == "revisions":
            world.revisions.clear()
        else:
            world.body[part] |= fields
    assert stage_inputs.observed(world.observe()) is None


@both
def test_an_earlier_copy_of_the_daemonset_at_rest_replaces_no_pod(owned: bool) -> None:
    world = RolloutWorld(FAST, 10, owned=owned)
    proven = world.body["metadata"]["annotations"][keys.PROVEN]
    world.commit(SECOND)
    world.run()
    world.edit("agent:1")
    world.turn()
    inputs = edited(world, **{keys.PROVEN: proven})
    assert inputs.foreign == keys.PROVEN
    before = world.decide(world.observe(), replace(inputs, foreign=""))
    assert any(isinstance(action, DeletePod) for action in before.decision.actions)
    decided = world.decide(world.observe(), inputs)
    assert not any(isinstance(action, DeletePod) for action in decided.decision.actions)
    assert decided.stages.hold is not None
    assert keys.PROVEN in decided.stages.hold.reason


@both
def test_a_policy_that_a_person_wrote_opens_no_stage(owned: bool) -> None:
    world = RolloutWorld(FAST, 10, owned=owned)
    world.canary()
    stage = {"name": "rest", "soak": "0s", "pace": {"start": "100%", "max": "100%"}}
    policy = {"stages": [stage], "limits": {"atRisk": {"cluster": "100%"}}}
    inputs = edited(world, **{keys.ROLLOUT_POLICY: target_revisions.policy_text(policy, ())})
    assert world.decide(world.observe(), replace(inputs, foreign="")).stages.take
    decided = world.decide(world.observe(), inputs).stages
    assert (decided.take, decided.record, decided.commits) == ((), inputs.record, False)
    assert decided.hold is not None
    assert decided.hold.kind is HoldKind.EDITED


@both
@pytest.mark.parametrize(
    ("removed", "written"),
    [
        ((keys.TARGET,), {}),
        ((keys.PROVEN, keys.TARGET), {}),
        ((keys.PHASE, keys.TARGET), {}),
        ((keys.TARGET,), {keys.PHASE: RolloutPhase.COMPLETE}),
    ],
)
def test_an_annotation_that_a_person_removed_returns_no_node(
    owned: bool, removed: tuple[str, ...], written: dict[str, str]
) -> None:
    world = RolloutWorld(FAST, 10, owned=owned)
    world.canary()
    annotations = world.body["metadata"]["annotations"]
    for name in removed:
        del annotations[name]
    inputs = edited(world, **written)
    assert inputs.foreign in (*removed, *written)
    before = world.decide(world.observe(), replace(inputs, foreign=""))
    assert any(isinstance(action, DeletePod) for action in before.decision.actions)
    decided = world.decide(world.observe(), inputs)
    assert not any(isinstance(action, DeletePod) for action in decided.decision.actions)
    assert decided.stages.hold is not None
    assert decided.stages.hold.kind is HoldKind.EDITED


def test_a_rollout_without_its_proof_is_on_hold() -> None:
    world = RolloutWorld(FAST, 10)
    world.canary()
    del world.body["metadata"]["annotations"][keys.PROVEN]
    inputs = edited(world)
    decided = world.decide(world.observe(), inputs).stages
    assert (decided.take, decided.record, decided.commits) == ((), inputs.record, False)
    assert decided.hold is not None
    assert "no template is proven yet" in decided.hold.reason


@both
def test_a_pod_of_an_edit_to_the_target_is_replaced_when_the_edit_is_put_back(owned: bool) -> None:
    world = RolloutWorld({"stages": [{"name": "canary", "soak": "1d"}, "rest"]}, 6, owned=owned)
    canary = world.canary(nodes=1)
    target = next(
        body for body in world.pods.values() if names.ROLLOUT in body["metadata"]["labels"]
    )
    gone = next(one for one in world.parsed() if one.node not in canary)
    labels = {**target["metadata"]["labels"]}
    del labels[names.ROLLOUT]
    world.vanish(gone.name)
    edited = world.existing("agent-edited", gone.node, labels=labels)
    edited["spec"]["containers"] = target["spec"]["containers"]
    world.start(edited)
    assert gone.node in world.on(SECOND)
    for _ in range(20):
        world.pass_time()
    assert world.on(SECOND) == canary


@both
def test_pods_of_an_edit_to_the_target_prove_no_node_while_the_edit_stays(owned: bool) -> None:
    world = RolloutWorld(FAST, 10, owned=owned)
    canary = world.canary()
    world.until(lambda: "canary" in world.stages.record.passed)
    world.edit(SECOND)
    pods_of_an_edit(world, {one.node for one in world.parsed()} - canary)
    world.now += 3_600
    inputs = world.inputs()
    assert inputs is not None
    stages = world.decide(world.observe(), inputs).stages
    assert not stages.complete
    assert {one.node for one in stages.nodes if one.step is NodeStep.PROVED} == canary
    assert stages.returned == ()


def pods_of_an_edit(world: RolloutWorld, nodes: set[str]) -> None:
    """The pods of these nodes are those of the DaemonSet controller while the DaemonSet had the
    template of the target.
    """
    target = next(
        body for body in world.pods.values() if names.ROLLOUT in body["metadata"]["labels"]
    )
    labels = {**target["metadata"]["labels"]}
    del labels[names.ROLLOUT]
    for pod in [one for one in world.parsed() if one.node in nodes]:
        world.vanish(pod.name)
        made = world.existing(f"edited-{pod.node}", pod.node, labels=labels)
        made["spec"]["containers"] = target["spec"]["containers"]
        world.start(made)


@both
def test_pods_of_an_edit_to_the_target_are_replaced_in_the_order_of_an_open_stage(
    owned: bool,
) -> None:
    world = RolloutWorld(FAST, 10, owned=owned)
    canary = world.canary()
    world.until(lambda: "canary" in world.stages.record.passed)
    pods_of_an_edit(world, {one.node for one in world.parsed()} - canary)
    made = {one.uid for one in world.parsed() if one.name.startswith("edited-")}
    world.most_at_risk = 0
    for _ in range(60):
        world.pass_time()
        running = [one for one in world.parsed() if one.ready and not one.terminating]
        assert len(running) >= 6, world.stages
    assert world.most_at_risk <= 4
    assert not made.intersection(one.uid for one in world.parsed())


def test_annotations_of_the_deployer_are_not_foreign() -> None:
    world = RolloutWorld(FAST, 10)
    world.commit(SECOND)
    assert edited(world).foreign == ""


@pytest.mark.parametrize(
    ("path", "agent"),
    [
        ("agents/cni/daemonset.yaml", "cni"),
        ("agents/cni/base/daemonset.yaml", "cni"),
        ("agents/daemonset.yaml", "agent"),
        ("apps/cni/daemonset.yaml", "agent"),
        ("daemonset.yaml", "agent"),
        ("", "agent"),
    ],
)
def test_the_agent_of_a_daemonset_is_its_folder_else_its_name(path: str, agent: str) -> None:
    body = daemonset()
    body["metadata"]["annotations"] = {names.PATH: path}
    assert stage_inputs.agent_of(daemonsets.daemonset_of(body)) == agent


class Waiting(RolloutWorld):
    """A rollout whose inputs have the nodes on which another agent is outdated."""

    behind: dict[str, frozenset[str]]

    def inputs(self) -> StageInputs | None:
        collected = super().inputs()
        return None if collected is None else replace(collected, behind=self.behind)


@both
def test_a_node_is_updated_after_the_agent_with_precedence(owned: bool) -> None:
    world = Waiting({**FAST, "after": [{"agent": "cni", "sameNode": True}]}, 6, owned=owned)
    world.behind = {"cni": frozenset({"node-002", "node-004"})}
    world.commit(SECOND)
    for _ in range(100):
        world.pass_time()
    assert world.on("agent:1") == {"node-002", "node-004"}
    world.behind = {}
    world.run()
    assert len(world.on(SECOND)) == 6


@both
def test_a_rollout_begins_when_the_agent_with_precedence_is_up_to_date_everywhere(
    owned: bool,
) -> None:
    world = Waiting({**FAST, "after": [{"agent": "cni"}]}, 6, owned=owned)
    world.behind = {"cni": frozenset({"node-004"})}
    world.commit(SECOND)
    for _ in range(20):
        world.pass_time()
    assert not world.on(SECOND)
    assert world.hold == "agent cni is updated first"
    assert world.last is not None
    assert world.last.decision.wake_after is not None
    world.behind = {}
    world.run()
    assert len(world.on(SECOND)) == 6


LISTED = {keys.APPROVERS: "team-gpu", names.APPROVE: "rest"}


@pytest.mark.parametrize(
    ("annotations", "stages"),
    [
        *(
            ({names.APPROVE: text}, stages)
            for text, stages in (
                ("", set()),
                ("gpu", {"gpu"}),
                ("gpu, rest", {"gpu", "rest"}),
                (",", set()),
                ("gpu=5d9f", {"gpu"}),
                ("gpu=5d9e", set()),
                ("gpu=", set()),
                ("gpu=5d9e, rest = 5d9f", {"rest"}),
            )
        ),
        # with approvers only their approvals count
        *(
            ({**LISTED, keys.APPROVALS: text}, stages)
            for text, stages in (
                ("", set()),
                ("[]", set()),
                ("gpu", set()),
                ('[{"stage": "gpu", "hash": "5d9f"}]', {"gpu"}),
                ('[{"stage": "gpu", "hash": "5d9e"}]', set()),
                ('[{"stage": "gpu"}]', set()),
                ('[{"hash": "5d9f"}]', set()),
            )
        ),
    ],
)
def test_the_annotations_of_the_target_revision_name_its_approved_stages(
    annotations: dict[str, str], stages: set[str]
) -> None:
    world = RolloutWorld(FAST, 2)
    template = copy.deepcopy(world.body["spec"]["template"])
    body = target_revisions.body_of(daemonsets.daemonset_of(world.body), template, "abc")
    body["metadata"]["annotations"] |= annotations
    revision = revisions.revision_of(world._born(body))
    assert revision is not None
    target = RolloutTarget(
        "5d9f", template, revision.name, revision.uid, staged=True, hashes=frozenset({"5d9f"})
    )
    found = rollout_annotations.approvals([revision], target)
    assert {one.stage for one in found} == stages
    assert not rollout_annotations.approvals([revision], replace(target, uid="another"))


def selecting(world: RolloutWorld, spec: dict[str, Any]) -> None:
    """A commit whose template has further fields."""
    stable = world.body
    world.body = copy.deepcopy(stable)
    world.body["spec"]["template"]["spec"] |= spec
    changed = world.body["spec"]["template"]
    target = target_revisions.body_of(daemonsets.daemonset_of(stable), changed, "abc")
    world.body = copy.deepcopy(stable)
    world.body["metadata"]["annotations"][keys.TARGET] = target["metadata"]["name"]
    world.revisions[target["metadata"]["name"]] = world._born(target)


@both
def test_nodes_that_the_target_excludes_get_no_pod_of_it(owned: bool) -> None:
    nodes = [node(f"node-{n}", {"pool": "a" if n % 2 else "b"}) for n in range(6)]
    world = RolloutWorld(FAST, nodes, owned=owned)
    before = set(world.pods)
    selecting(world, {"nodeSelector": {"pool": "a"}})
    for _ in range(100):
        world.staged_turn()
        world.kubelets()
        world.now += 4
    assert {one.node for one in world.stages.nodes} == {"node-1", "node-3", "node-5"}
    assert world.stages.complete
    parsed = {pod.node: pod for pod in world.parsed()}
    assert {parsed[f"node-{n}"].name for n in (0, 2, 4)} <= before
    assert all(names.ROLLOUT in parsed[f"node-{n}"].labels for n in (1, 3, 5))


def test_a_node_whose_taint_keeps_its_pod_is_parked_and_not_updated() -> None:
    world = RolloutWorld(FAST, 6)
    world.nodes[0]["spec"]["taints"] = [{"key": "dedicated", "effect": "NoSchedule"}]
    world.commit(SECOND)
    for _ in range(100):
        world.pass_time()
    assert world.on("agent:1") == {"node-000"}
    steps = {one.node: one for one in world.stages.nodes}
    assert steps["node-000"].step is NodeStep.PARKED
    assert steps["node-000"].reason == "NotEligible"


def test_the_inputs_hold_the_agents_that_are_behind_by_the_observations_of_the_controller() -> None:
    other = earlier()
    other.edit("agent:2")
    other.turn()
    world = RolloutWorld(FAST, 4)
    document = {**FAST, "after": [{"agent": "cni"}]}
    world.body["metadata"]["annotations"][keys.ROLLOUT_POLICY] = target_revisions.policy_text(
        document, ()
    )
    sources = RolloutSources(lambda: [other.observe()])
    rollouts = RolloutMemory(lambda _: None, lambda: world.now, sources)
    inputs = rollouts.inputs(world.observe())
    assert inputs is not None
    assert not inputs.behind  # no rollout is in progress
    world.commit(SECOND)
    inputs = rollouts.inputs(world.observe())
    assert inputs is not None
    assert inputs.behind == {"cni": frozenset(f"node-{n}" for n in range(4))}


POOL = {"nodeSelector": {"pool": "a"}}


@pytest.mark.parametrize(
    ("edit", "target", "is_moved"),
    [
        ({}, {}, False),
        (POOL, {}, True),  # neither those of the proven template nor those of the target
        (POOL, POOL, False),
        ({}, POOL, False),
        ({"terminationGracePeriodSeconds": 5}, {}, False),
    ],
)
def test_a_rollout_knows_a_daemonset_that_was_edited_to_select_other_nodes(
    edit: dict[str, Any], target: dict[str, Any], is_moved: bool
) -> None:
    world = RolloutWorld(FAST, 6)
    world.commit(SECOND)
    (known,) = (body for body in world.revisions.values() if body["revision"] == 0)
    known["data"]["spec"]["template"]["spec"] |= target
    world.body["spec"]["template"]["spec"] |= edit
    assert edited(world).moved is is_moved


@both
@pytest.mark.parametrize(
    ("busy", "elsewhere", "seconds"),
    [("", "", None), ("node-000", "", 15.0), ("", "DaemonSet logging/other", 15.0)],
)
def test_other_agents_and_pods_are_observed_again_after_15_seconds(
    owned: bool, busy: str, elsewhere: str, seconds: float | None
) -> None:
    world = RolloutWorld(FAST, 6, owned=owned)
    world.commit(SECOND)
    inputs = world.inputs()
    assert inputs is not None
    nodes = frozenset(filter(None, [busy]))
    inputs = replace(inputs, busy=nodes, halted_elsewhere=elsewhere)
    assert world.decide(world.observe(), inputs).decision.wake_after == seconds


@pytest.mark.parametrize(
    ("reason", "words"), [("too early", "suspended: too early"), ("", "suspended")]
)
def test_a_suspended_agent_takes_no_node_and_states_why(reason: str, words: str) -> None:
    world = RolloutWorld(FAST, 6)
    world.commit(SECOND)
    inputs = world.inputs()
    assert inputs is not None
    world.body["metadata"]["annotations"] |= {names.SUSPEND: "true", names.SUSPEND_REASON: reason}
    stages = world.decide(world.observe(), inputs).stages
    assert stages.hold is not None
    assert (stages.hold.kind, stages.hold.reason) == (HoldKind.SUSPENDED, words)
    assert stages.take == ()


def test_a_template_on_hold_takes_no_node_and_states_why() -> None:
    world = RolloutWorld(FAST, 6)
    world.commit(SECOND)
    inputs = world.inputs()
    assert inputs is not None
    inputs = replace(inputs, held="this template was halted before: no")
    stages = world.decide(world.observe(), inputs).stages
    assert stages.hold is not None
    assert (stages.hold.kind, stages.hold.reason) == (HoldKind.HALTED_BEFORE, inputs.held)
    assert stages.take == ()
    record = replace(inputs.record, halt=Halt(world.now, "canary", "no"))
    stages = world.decide(world.observe(), replace(inputs, record=record)).stages
    assert stages.hold is None, "the halt states the failure"
    assert stages.halt == record.halt
    assert stages.take == ()


@pytest.mark.parametrize(
    ("seconds", "reason", "about", "until"),
    [
        (3599.0, "approval by team-a, team-b", "canary", 3600.0),
        (3600.0, "approval by team-a, team-b, overdue", "canary, overdue", None),
    ],
)
def test_an_approval_is_overdue_after_the_time_of_the_policy(
    seconds: float, reason: str, about: str, until: float | None
) -> None:
    approval = {"from": ["team-a", "team-b"], "within": "1h"}
    world = RolloutWorld({"stages": [{"name": "canary", "approval": approval}, "rest"]}, 3)
    world.commit(SECOND)
    world.one_turn()
    began, hold = world.held_after(seconds)
    assert (hold.kind, hold.reason, hold.about) == (HoldKind.APPROVAL, reason, about)
    assert hold.until == (None if until is None else began + until)


@pytest.mark.parametrize(
    ("message", "nodes", "named", "end"),
    [
        ("", 1, "node-000", ""),
        ("no room\nfor it", 3, "node-000 and 2 other nodes", ": no room\\x0afor it"),
    ],
)
def test_the_hold_of_failures_that_others_cause_names_the_first_node(
    message: str, nodes: int, named: str, end: str
) -> None:
    world = RolloutWorld(FAST, 6)
    world.commit(SECOND)
    inputs = world.inputs()
    assert inputs is not None
    fleet = StagedNodes.of(decide.layout(world.observe()), inputs)
    held = [f"node-{number:03}" for number in range(nodes)]
    failed = {
        name: replace(fleet.nodes[name], reason="Unschedulable", message=message, cause="others")
        for name in held
    }
    attributed = AttributedNodes({**fleet.nodes, **failed}, held=frozenset(held))
    hold = rollout_holds.hold(replace(fleet, attributed=attributed))
    assert hold is not None
    reason = f"Unschedulable on {named}, caused by others, not by the template{end}"
    assert (hold.kind, hold.reason) == (HoldKind.OTHERS, reason)
    assert hold.about == "node-000/Unschedulable"


def test_an_edit_during_a_rollout_keeps_the_passed_stages_and_opens_no_other() -> None:
    world = RolloutWorld(FAST, 6)
    world.canary()
    world.until(lambda: "canary" in world.stages.record.passed)
    inputs = world.inputs()
    assert inputs is not None
    stages = world.decide(world.observe(), replace(inputs, foreign=keys.PROVEN)).stages
    assert [(one.name, one.state) for one in stages.stages] == [
        ("canary", StageState.PASSED),
        ("rest", StageState.HELD),
    ]


@both
@pytest.mark.parametrize(
    ("foreign", "unlisted", "kind"),
    [
        (keys.PROVEN, (), HoldKind.EDITED),
        ("", ("nodes", "pods"), HoldKind.RELISTED),
        (keys.PROVEN, ("nodes", "pods"), HoldKind.RELISTED),
    ],
)
def test_an_edit_and_a_new_list_of_one_kind_let_no_rollout_begin(
    owned: bool, foreign: str, unlisted: tuple[str, ...], kind: HoldKind
) -> None:
    world = RolloutWorld(FAST, 6, owned=owned)
    world.commit(SECOND)
    inputs = world.inputs()
    assert inputs is not None
    seen = replace(world.observe(), unlisted=unlisted)
    decided = world.decide(seen, replace(inputs, foreign=foreign))
    assert decided.stages.hold is not None
    assert decided.stages.hold.kind is kind
    assert (decided.stages.take, decided.stages.open) == ((), frozenset())
    assert decided.stages.record == inputs.record
    assert decided.decision.actions == ()
    assert world.decide(world.observe(), inputs).stages.take


@pytest.mark.parametrize(("refuses", "named"), [("", "the pods"), (RECORD, RECORD)])
def test_the_hold_names_the_write_that_the_api_server_refuses(refuses: str, named: str) -> None:
    world = RolloutWorld(FAST, 6)
    world.commit(SECOND)
    inputs = world.inputs()
    assert inputs is not None
    inputs = replace(inputs, refused="no", refuses=refuses, refused_until=world.now + 60.0)
    hold = world.decide(world.observe(), inputs).stages.hold
    assert hold is not None
    assert (hold.kind, hold.until) == (HoldKind.REFUSED, world.now + 60.0)
    assert hold.reason == f"the API server refuses {named}: no"
    inputs = replace(inputs, refused_until=world.now)
    assert world.decide(world.observe(), inputs).stages.hold is None, "it is tried again"


@both
@pytest.mark.parametrize(
    ("refused", "refuses", "halted_elsewhere", "stated", "is_recorded"),
    [
        ("", "", "", "", True),
        ("no", "", "", "no", True),
        ("no", "the deletion of pods", "", "no", True),
        ("no", RECORD, "", "no", False),  # it cannot state its own refusal
        ("no", "", "another rollout is halted", "", True),
        ("", "", "another rollout is halted", "", True),
    ],
)
def test_the_record_states_why_the_api_server_refuses_a_write_of_the_rollout(
    owned: bool, refused: str, refuses: str, halted_elsewhere: str, stated: str, is_recorded: bool
) -> None:
    world = RolloutWorld(FAST, 6, owned=owned)
    world.commit(SECOND)
    inputs = world.inputs()
    assert inputs is not None
    inputs = replace(inputs, refused=refused, refuses=refuses, halted_elsewhere=halted_elsewhere)
    decided = world.decide(world.observe(), inputs)
    record = decided.stages.record
    assert (record.refused, record.refuses) == (stated, refuses if stated else "")
    records = [one for one in decided.decision.actions if isinstance(one, RecordRollout)]
    assert bool(records) is is_recorded
    again = world.decide(world.observe(), replace(inputs, record=record, refused="other words"))
    assert again.stages.record.refused == (stated or ("" if halted_elsewhere else "other words"))
