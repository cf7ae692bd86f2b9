"""The status of a commit on a forge names the stages of its rollout, and is a success only after
the last one.
"""

from __future__ import annotations

from typing import Any

from gitops_ds.model import names
from gitops_ds.model.objects import CommitId, Key
from gitops_ds.model.rollouts.staged_rollout import StageState
from tests.fleet.staged_world import FAST, Watched, watched
from tests.notifications.test_commit_progress import Forge, ended, new, wrote
from tests.rollouts.rollout_world import SECOND

COMMIT = CommitId("2" * 40)
KEY = Key("apps", "DaemonSet", "logging", "agent")


def pushed(there: Watched) -> Forge:
    """A forge that follows a commit with the second image, which the deployer has written."""
    forge = Forge()
    forge.handle(new(COMMIT), wrote(KEY), ended(COMMIT))
    there.commit(SECOND)
    there.world.body["metadata"]["annotations"][names.COMMIT] = COMMIT
    return forge


def test_each_passed_stage_is_published_and_success_follows_the_last_one() -> None:
    there = watched({**FAST, "limits": {"atRisk": {"cluster": "100%"}}})
    forge = pushed(there)
    for _ in range(150):
        agent = there.agent()
        stages = agent.rollout.stages.stages if agent.rollout else ()
        published = forge.look(agent, desired=(KEY,))
        if any(state == "success" for _, state, _ in published):
            assert all(stage.state is StageState.PASSED for stage in stages)
        there.world.pass_time()
    words = [stage.words for _, stage in forge.sent]
    assert words[0] == "rolling out canary 0/2, rest 0/8"
    assert "rolling out canary 2/2, rest 0/8" in words
    assert words[-1] == "logging/agent healthy on 10 nodes"
    assert [stage.state.value for _, stage in forge.sent].count("success") == 1


def test_the_approval_of_the_current_stage_is_published() -> None:
    there = watched()
    forge = pushed(there)
    there.rounds(6)
    there.approve("canary")
    forge.look(there.agent(), desired=(KEY,))
    assert forge.sent[-1][1].words == (
        "rolling out canary 0/2, rest 0/8; canary approved by ada@example.com"
    )


def test_a_canary_of_a_large_fleet_is_published() -> None:
    there = watched(nodes=60)
    forge = pushed(there)
    while forge.sent[-1:] == [] or "canary 2/2" not in forge.sent[-1][1].words:
        forge.look(there.agent(), desired=(KEY,))
        there.world.pass_time()
        assert there.world.now < 1_900_000_000.0
    assert forge.sent[-1][1].state.value == "running"


def test_a_halt_is_a_failure_with_its_reason_and_a_hold_is_not_a_failure() -> None:
    policy: dict[str, Any] = {**FAST, "freeze": [{"from": "2027-01-01", "to": "2027-01-15"}]}
    there = watched(policy)
    there.world.bad_images.add(SECOND)
    forge = pushed(there)
    there.rounds(5)
    forge.look(there.agent(), desired=(KEY,))
    assert [stage.state.value for _, stage in forge.sent] == ["running"]
    there.world.now += 86400.0
    there.rounds(20)
    ((_, state, words),) = forge.look(there.agent(), desired=(KEY,))
    assert state == "failure"
    assert words.startswith("logging/agent: halted in stage canary: ImagePullBackOff on node-")
