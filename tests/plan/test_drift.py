"""Changes of users and controllers in the cluster: author, and correction, report or pause,
and the delays between corrections.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import errors, names
from gitops_ds.core.change import Author, Drifted, FieldChange
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.events.drift import DriftDetected, DriftEvent
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, Key, ListMember
from gitops_ds.core.rate_limits import Backoff
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.core.values import replace
from gitops_ds.deploy.apply import plan_execution
from gitops_ds.deploy.plan import drift
from gitops_ds.deploy.plan.drift import Damping
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.service.settings.apply import ApplySettings
from gitops_ds.testing import simulator
from tests.plan import world
from tests.plan.world import World, config_map, daemonset

play = world.play

AGENT = Key("apps", "DaemonSet", "default", "agent")
FILES = {"agent.yaml": daemonset(image="ours:1")}
HOUR = 3600.0
IMAGE = {"spec": {"template": {"spec": {"containers": [{"name": "agent", "image": "changed:1"}]}}}}
IMAGE_2 = {
    "spec": {"template": {"spec": {"containers": [{"name": "agent", "image": "changed:2"}]}}}
}
LABEL = {"metadata": {"labels": {"team": "mine"}}}


async def change(
    cluster: simulator.SimulatedCluster, manager: str = "kubectl-set", patch: Any = IMAGE
) -> None:
    await cluster.client(manager).patch(
        DAEMONSET, "default", "agent", patch, type=PatchType.STRATEGIC
    )


async def image(cluster: simulator.SimulatedCluster) -> str:
    body = await cluster.get(DAEMONSET, "default", "agent")
    return str(body["spec"]["template"]["spec"]["containers"][0]["image"])


def facts(deployer: World) -> list[str]:
    return [event.definition.kind for event in deployer.records if isinstance(event, DriftEvent)]


def options(choice: DriftPolicy, **more: Any) -> ApplyOptions:
    return ApplyOptions(drift=choice, patience=0, **more)


def of(manager: str, operation: str = "Update") -> tuple[Author, ...]:
    return (Author(manager, operation),)


CONTAINER = ("spec", "template", "spec", "containers", ListMember("agent"))
IMAGE_PATH, TEMPLATE = (*CONTAINER, "image"), ("spec", "template")
LABEL_PATH = ("metadata", "labels", "a")
LOOKS = [
    (of("kubectl-set"), IMAGE_PATH, "kubectl set image"),
    (of("kubectl-set"), (*CONTAINER, "resources"), "kubectl set resources"),
    (of("kubectl-set"), (*CONTAINER, "env"), "kubectl set env"),
    (of("kubectl-set"), TEMPLATE, "kubectl set"),
    (of("kubectl-edit"), IMAGE_PATH, "kubectl edit"),
    (of("kubectl-label"), IMAGE_PATH, "kubectl label"),
    (of("kubectl-annotate"), IMAGE_PATH, "kubectl annotate"),
    (of("kubectl-patch"), IMAGE_PATH, "kubectl patch"),
    (of("kubectl-client-side-apply"), IMAGE_PATH, "kubectl apply"),
    (of("kubectl", "Apply"), TEMPLATE, "kubectl apply --server-side"),
    (of("kubectl"), TEMPLATE, "kubectl patch"),
    (of("kubectl"), LABEL_PATH, "kubectl"),
    (of("kubectl-rollout"), TEMPLATE, "kubectl rollout"),
    (of("kubectl-rollout"), LABEL_PATH, "kubectl rollout"),
    (of("kubectl-new-verb"), TEMPLATE, "kubectl new-verb"),
    (of("helm"), IMAGE_PATH, "Helm"),
    (of("argocd-controller", "Apply"), IMAGE_PATH, "Argo CD"),
    (of("kustomize-controller", "Apply"), IMAGE_PATH, "Flux"),
    (of("vpa-updater"), (*CONTAINER, "resources"), "the controller vpa-updater"),
    ((), CONTAINER, "an unknown writer"),
]


@pytest.mark.parametrize(("by", "path", "words"), LOOKS)
def test_the_action_is_derived_from_the_field_manager(
    by: tuple[Author, ...], path: Any, words: str
) -> None:
    assert drift.looks_like({}, [FieldChange(path, "a", "b")], by, ()) == words


def test_drift_has_the_uid_of_its_object_and_contested_drift_no_times() -> None:
    live = {"metadata": {"uid": "u1", "managedFields": []}}
    found = drift.of_fields(live, [FieldChange(("data",), "a", "b")], (), DriftPolicy.REPORT)
    assert (found.uid, found.contested, found.choice) == ("u1", False, DriftPolicy.REPORT)
    assert drift.of_fields({}, [], (), DriftPolicy.REPORT).uid == ""
    author = Author("vpa", at="2026-01-01T00:00:00Z")
    contested = drift.contested(replace(found, by=(author,)))
    assert (contested.by, contested.contested) == ((Author("vpa"),), True)


@pytest.mark.parametrize(
    ("path", "own"),
    [
        (("metadata", "annotations", names.REPOSITORY), True),
        (("metadata", "annotations", names.PATH), True),
        (("metadata", "annotations", names.COMMIT), False),
        (("metadata", "labels", names.PATH), False),
    ],
)
def test_the_source_of_an_object_is_not_a_change_in_the_cluster(
    path: tuple[str, ...], own: bool
) -> None:
    assert drift.is_own(FieldChange(path, "a", "b")) is own


def test_at_most_five_fields_are_named_and_all_are_in_the_json() -> None:
    author = Author("kubectl-edit", "Update", "status", "2026-01-01T00:00:00Z")
    fields = tuple(FieldChange(("data", f"k{n}"), "a", "b") for n in range(6))
    drifted = Drifted(fields[:5], (author,), "kubectl edit", DriftPolicy.HOLD)
    start = "changed by kubectl edit (kubectl-edit, 2026-01-01T00:00:00Z): data.k0, "
    assert drift.words(drifted) == f"{start}data.k1, data.k2, data.k3, data.k4"
    more = replace(drifted, fields=fields)
    assert drift.words(more) == f"{start}data.k1, data.k2, data.k3, data.k4 and 1 more"
    nobody = replace(drifted, by=(replace(author, at=""),), fields=fields[:1])
    assert drift.words(nobody) == "changed by kubectl edit (kubectl-edit): data.k0"
    assert drift.words(replace(nobody, by=())) == "changed by kubectl edit: data.k0"
    manager = {
        "manager": "kubectl-edit",
        "operation": "Update",
        "subresource": "status",
        "time": "2026-01-01T00:00:00Z",
    }
    assert drift.as_json(more) == {
        "action": "hold",
        "looksLike": "kubectl edit",
        "managers": [manager],
        "fields": [f"data.k{n}" for n in range(6)],
        "message": drift.words(more),
    }


def revision(number: int, image: str, created: str) -> Revision:
    template = daemonset(image=image)["spec"]["template"]
    return Revision(
        f"agent-{image}", number, "", template, {"metadata": {"creationTimestamp": created}}
    )


def test_an_earlier_template_is_reported_as_an_undo() -> None:
    changed = [FieldChange((*CONTAINER, "image"), "ours:1", "ours:2")]
    known = (
        revision(2, "ours:2", "2026-01-02T00:00:00Z"),
        revision(3, "ours:1", "2026-01-01T00:00:00Z"),
    )
    undone, patched = daemonset(image="ours:1"), daemonset(image="new:1")
    for manager in ("kubectl", "kubectl-rollout"):
        assert drift.looks_like(undone, changed, of(manager), known) == "kubectl rollout undo"
    assert drift.looks_like(patched, changed, of("kubectl"), known) == "kubectl patch"
    # both may be of one second
    together = (known[0], revision(3, "ours:1", "2026-01-02T00:00:00Z"))
    assert drift.looks_like(undone, changed, of("kubectl"), together) == "kubectl rollout undo"
    # the template of the latest revision is not an earlier one
    latest = daemonset(image="ours:2")
    assert drift.looks_like(latest, changed, of("kubectl"), known) == "kubectl patch"


async def test_corrected_drift_is_reported_with_its_writer_and_its_correction(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(FILES)
    assert facts(deployer) == []
    await change(cluster)
    done = await deployer.apply(FILES)
    assert await image(cluster) == "ours:1"
    assert facts(deployer) == ["DriftDetected", "DriftCorrected"]
    (event,) = [event for event in deployer.records if isinstance(event, DriftDetected)]
    assert (event.object, event.drifted.looks_like, event.drifted.by[0].manager) == (
        AGENT,
        "kubectl set image",
        "kubectl-set",
    )
    assert "spec.template.spec.containers[agent].image" in event.words
    assert done.state.drift == {}
    await deployer.apply(FILES)
    assert len(facts(deployer)) == 2


@pytest.mark.parametrize("choice", [DriftPolicy.REPORT, DriftPolicy.HOLD])
async def test_ignored_drift_is_reported_once_and_remembered(
    deployer: World, cluster: simulator.SimulatedCluster, /, choice: DriftPolicy
) -> None:
    expected = ["DriftDetected"] if choice is DriftPolicy.REPORT else ["DriftDetected", "DriftHeld"]
    await deployer.apply(FILES, options=options(choice))
    await change(cluster)
    for _ in range(3):
        left = await deployer.apply(FILES, options=options(choice))
        assert (left.writes, left.guards, facts(deployer)) == (0, ["drift"], expected)
    assert "image" in left.refusals[0].message
    assert await image(cluster) == "changed:1"
    state = await deployer.state()
    assert state.drift[AGENT].choice is choice
    assert "kubectl set image" in state.drift[AGENT].words

    # Another change is reported again; a commit with the values of the cluster ends the drift.
    await change(cluster, "kubectl-edit", IMAGE_2)
    await deployer.apply(FILES, options=options(choice))
    assert facts(deployer) == expected * 2
    done = await deployer.apply(
        {"agent.yaml": daemonset(image="changed:2")}, options=options(choice)
    )
    assert (done.guards, done.state.drift) == ([], {})


@pytest.mark.parametrize("choice", [DriftPolicy.REPORT, DriftPolicy.HOLD])
async def test_the_annotation_in_git_has_precedence_over_the_option(
    deployer: World, cluster: simulator.SimulatedCluster, /, choice: DriftPolicy
) -> None:
    body = daemonset(image="ours:1")
    body["metadata"]["annotations"] = {names.DRIFT: choice.value}
    for writes, guards in ((1, []), (0, ["drift"])):
        done = await deployer.apply({"agent.yaml": body}, options=options(DriftPolicy.CORRECT))
        assert (done.writes, done.guards) == (writes, guards)
        await change(cluster)
    assert await image(cluster) == "changed:1"


async def test_a_new_commit_to_the_object_wins_over_what_was_left(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(FILES, options=options(DriftPolicy.HOLD))
    await change(cluster)
    await deployer.apply(FILES, options=options(DriftPolicy.HOLD))
    done = await deployer.apply(
        {"agent.yaml": daemonset(image="ours:2")}, options=options(DriftPolicy.HOLD)
    )
    assert (done.writes, done.state.drift) == (1, {})
    assert await image(cluster) == "ours:2"


async def test_held_drift_is_corrected_when_its_time_is_over_also_by_another_process(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    terms = options(DriftPolicy.HOLD, hold_for=2 * HOUR)
    now = [0.0]
    first = World(cluster.client(), clock=lambda: now[0])
    await first.apply(FILES, options=terms)
    await change(cluster)
    now[0] = 1 * HOUR
    assert (await first.apply(FILES, options=terms)).guards == ["drift"]
    # A later change does not restart the pause.
    await change(cluster, patch=IMAGE_2)
    second = World(cluster.client(), clock=lambda: now[0])
    now[0] = 3 * HOUR - 1
    assert (await second.apply(FILES, options=terms)).guards == ["drift"]
    assert plan_execution.next_comparison(await second.state(), terms, now[0]) == 3 * HOUR
    now[0] = 3 * HOUR
    done = await second.apply(FILES, options=terms)
    assert (done.writes, done.guards, done.state.drift) == (1, [], {})
    assert await image(cluster) == "ours:1"

    await change(cluster)
    assert (await second.apply(FILES, options=terms)).guards == ["drift"]


async def test_an_expired_hold_stays_expired_until_the_correction_is_applied(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    terms, now = options(DriftPolicy.HOLD, hold_for=HOUR), [0.0]
    client = cluster.client()
    held = World(client, clock=lambda: now[0])
    await held.apply(FILES, options=terms)
    await change(cluster)
    await held.apply(FILES, options=terms)
    now[0] = HOUR
    draft = await held.draft(FILES, options=terms)
    client.faults = lambda request: (
        simulator.faults.failure(422) if request.verb == "apply" else None
    )
    assert (await held.carry_out(draft, terms)).guards == ["refused"]
    client.faults = simulator.faults.none
    assert (await held.apply(FILES, options=terms)).writes == 1


async def test_the_live_annotation_wins_over_gits_and_gits_over_the_agents(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await deployer.apply(FILES)
    await change(cluster, "kubectl-annotate", {"metadata": {"annotations": {names.DRIFT: "hold"}}})
    assert (await deployer.apply(FILES)).writes == 0  # Git does not set it
    await change(cluster)
    assert (await deployer.apply(FILES)).guards == ["drift"]
    await change(cluster, "kubectl-annotate", {"metadata": {"annotations": {names.DRIFT: None}}})
    assert (await deployer.apply(FILES)).writes == 1


async def test_an_agent_can_set_the_policy_in_its_own_file(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    files = {
        "agents/agent/agent.yaml": "drift: report\n",
        "agents/agent/daemonset.yaml": daemonset(image="ours:1"),
    }
    await deployer.apply(files)
    await change(cluster)
    assert (await deployer.apply(files)).guards == ["drift"]


RESTART = {
    "spec": {
        "template": {
            "metadata": {
                "annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}
            }
        }
    }
}
NOBODYS = [
    ("kubectl-rollout", RESTART),
    ("kubectl-label", LABEL),
    ("kubectl-patch", {"spec": {"minReadySeconds": 7}}),
]


@pytest.mark.parametrize(("manager", "patch"), NOBODYS)
@pytest.mark.parametrize("choice", list(DriftPolicy))
async def test_fields_that_git_does_not_set_are_ignored(
    deployer: World,
    cluster: simulator.SimulatedCluster,
    /,
    manager: str,
    patch: Any,
    choice: DriftPolicy,
) -> None:
    await deployer.apply(FILES, options=options(choice))
    await change(cluster, manager, patch)
    before = await cluster.get(DAEMONSET, "default", "agent")
    done = await deployer.apply(FILES, options=options(choice))
    assert (done.writes, done.refusals, facts(deployer)) == (0, (), [])
    assert await cluster.get(DAEMONSET, "default", "agent") == before
    # A commit is applied on top of it.
    await deployer.apply({"agent.yaml": daemonset(image="ours:2")}, options=options(choice))
    after = await cluster.get(DAEMONSET, "default", "agent")
    assert leaf(patch, after) == leaf(patch, patch)
    assert await image(cluster) == "ours:2"


def leaf(shape: Any, value: Any) -> Any:
    while isinstance(shape, dict):
        (key,) = shape
        shape, value = shape[key], value[key]
    return value


async def test_a_field_without_an_owner_is_attributed_to_the_last_writer(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    body = daemonset(image="ours:1")
    body["metadata"]["labels"] = {"team": "ours"}
    await deployer.apply({"agent.yaml": body})
    await change(cluster, "kubectl-label", {"metadata": {"labels": {"team": None}}})
    done = await deployer.apply({"agent.yaml": body})
    assert done.writes == 1
    (event,) = [event for event in deployer.records if isinstance(event, DriftDetected)]
    assert "metadata.labels.team" in event.words


@pytest.mark.parametrize("choice", list(DriftPolicy))
async def test_a_deleted_object_is_drift(
    deployer: World, cluster: simulator.SimulatedCluster, /, choice: DriftPolicy
) -> None:
    files = {**FILES, "c.yaml": config_map("c")}
    await deployer.apply(files, options=options(choice))
    await cluster.delete(CONFIG_MAP, "default", "c")
    await deployer.apply(files, options=options(choice))
    done = await deployer.apply(files, options=options(choice))
    words = [event.words for event in deployer.records if isinstance(event, DriftDetected)]
    assert words == ["deleted in the cluster"]
    if choice is DriftPolicy.CORRECT:
        assert await cluster.get(CONFIG_MAP, "default", "c")
    else:
        assert (done.writes, done.guards) == (0, ["drift"])
        with pytest.raises(errors.NotFound):
            await cluster.get(CONFIG_MAP, "default", "c")
        state = await deployer.state()
        await deployer.apply(files, options=options(choice))
        assert replace(await deployer.state(), version="") == replace(state, version="")
        # A commit that changes it creates it again.
        await deployer.apply({**FILES, "c.yaml": config_map("c", a="1")}, options=options(choice))
        assert await cluster.get(CONFIG_MAP, "default", "c")


@pytest.mark.parametrize("choice", [DriftPolicy.REPORT, DriftPolicy.HOLD])
async def test_the_history_has_no_commit_for_a_template_of_no_commit(
    deployer: World, cluster: simulator.SimulatedCluster, /, choice: DriftPolicy
) -> None:
    await deployer.apply(FILES, options=options(choice))
    history = (await deployer.state()).commits
    await change(cluster)
    assert (await deployer.apply(FILES, "second", options=options(choice))).state.commits == history


@pytest.mark.parametrize("how", ["changed", "deleted"])
async def test_contested_drift_is_named_and_not_corrected_until_its_object_changes_in_git(
    deployer: World, cluster: simulator.SimulatedCluster, /, how: str
) -> None:
    contested = options(DriftPolicy.CORRECT, contested=frozenset({AGENT}))
    await deployer.apply(FILES, options=contested)
    if how == "changed":
        await change(cluster)
    else:
        await cluster.delete(DAEMONSET, "default", "agent")
    left = await deployer.apply(FILES, options=contested)
    assert left.guards == ["contested"]
    there = [body["metadata"]["name"] for body in (await cluster.list(DAEMONSET)).items]
    assert there == (["agent"] if how == "changed" else [])
    done = await deployer.apply({"agent.yaml": daemonset(image="ours:2")}, options=contested)
    assert (done.guards, await image(cluster)) == ([], "ours:2")


FIRST, OTHER = Key("apps", "DaemonSet", "a", "a"), Key("apps", "DaemonSet", "a", "b")
BACKOFF = Backoff(10.0, 600.0)


def waits(number: int) -> list[float]:
    rows: drift.Rows = {}
    delays, now = [], 0.0
    for _ in range(number):
        rows = drift.rows_after(rows, [FIRST], now, BACKOFF)
        delays.append(rows[FIRST].wait)
        now += rows[FIRST].wait
    return delays


def test_the_first_correction_waits_for_nothing_and_each_later_one_twice_as_long() -> None:
    delays = waits(5)
    assert delays == [0.0, *(BACKOFF.delay(number) for number in (1, 2, 3, 4))]
    assert delays[-1] == 8 * delays[1]


def test_a_row_ends_after_a_minute_or_twice_its_wait() -> None:
    for wait, quiet in ((0.0, 60.0), (30.0, 60.0), (40.0, 80.0), (100.0, 200.0)):
        rows = {FIRST: Damping(3, 0.0, wait)}
        assert drift.rows_after(rows, [], quiet, BACKOFF).keys() == {FIRST}
        assert drift.rows_after(rows, [], quiet + 0.1, BACKOFF) == {}
        assert drift.rows_after(rows, [FIRST], quiet, BACKOFF)[FIRST].count == 4
        assert drift.rows_after(rows, [FIRST], quiet + 0.1, BACKOFF)[FIRST].count == 1


def test_a_correction_waits_until_its_time() -> None:
    rows = {FIRST: Damping(3, 100.0, 20.0), OTHER: Damping(3, 100.0, 40.0)}
    assert drift.damped(rows, 119.9) == {FIRST, OTHER}
    assert drift.damped(rows, 120.0) == {OTHER}
    assert drift.correction_due(rows, [FIRST, OTHER]) == 120.0
    assert drift.correction_due(rows, [OTHER]) == 140.0
    assert drift.correction_due({}, [FIRST]) == float("inf")


def test_without_settings_drift_is_held_as_long_as_by_their_default() -> None:
    assert ApplyOptions().hold_for == ApplySettings().hold_for == 24 * HOUR
