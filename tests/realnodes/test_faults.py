"""Templates that fail on real nodes are halted in the canary, with the words of Kubernetes, and a
revert brings every touched node back.
"""

from __future__ import annotations

import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.forges.servers import GitLab, Server
from tests.realnodes.faults import FAULTS, Fault, files
from tests.realnodes.lab import MARKS, Lab, Start, laboratory

pytestmark = MARKS
BAD = tuple(one for one in FAULTS if one.message and not one.later)


@pytest.mark.parametrize("powers", ["pace", "full"])
def test_a_template_that_fails_is_halted_in_the_canary(tmp_path: Path, powers: str) -> None:
    with (
        GitLab().in_a_thread() as forge,
        laboratory(tmp_path, powers, _publishing(tmp_path, forge)) as lab,
    ):
        _start(lab, staged=True)
        before = _pods(lab)
        pushed = time.time()
        commit = lab.upstream.commit(files(changed=True, staged=True))
        lab.until(lambda: all(_is_decided(lab.agents(), one) for one in FAULTS))
        agents, pods = lab.agents(), _pods(lab)
        assert [text for one in FAULTS if (text := _difference(agents[one.name], one))] == []
        for fault in BAD:
            kept = before[fault.name].keys() & pods[fault.name].keys()
            assert len(kept) == 1, f"{fault.name} changed outside of its canary"
            _is_shown(lab, fault)
            at = datetime.fromisoformat(agents[fault.name]["rollout"]["halt"]["at"]).timestamp()
            print(f"{powers}: {fault.name} is halted after {at - pushed:.0f} seconds")
        _is_published(forge, commit, agents)
        lab.upstream.commit(files(changed=False, staged=True))
        seconds = lab.until(lab.are_healthy)
        for fault in BAD:
            assert (
                before[fault.name].keys() & pods[fault.name].keys() <= _pods(lab)[fault.name].keys()
            )
        print(f"{powers}: every agent is healthy again after {seconds:.0f} seconds")


def _publishing(directory: Path, forge: Server) -> Start:
    """The settings of the forge, on which the service publishes the status of commits."""
    (directory / "token").write_text("good-token")
    file = str(directory / "token")
    known = {"kind": "gitlab", "project": "42"}
    settings = known | {"url": forge.url, "tokenFile": file, "allowHttp": True}
    return Start(settings={"repository": {"forge": settings}})


def _start(lab: Lab, *, staged: bool) -> None:
    """Every agent runs, and is healthy."""
    lab.plane.kubectl("create", "configmap", "present", "--from-literal=a=b")
    lab.upstream.commit(files(changed=False, staged=staged))
    lab.until(lambda: len(lab.agents()) == len(FAULTS) and lab.are_healthy())


def _pods(lab: Lab) -> dict[str, dict[str, Any]]:
    """The pods of each agent by their UID."""
    made: dict[str, dict[str, Any]] = {fault.name: {} for fault in FAULTS}
    for pod in lab.pods():
        made[pod["metadata"]["labels"]["app"]][pod["metadata"]["uid"]] = pod
    return made


def _is_decided(agents: dict[str, Any], fault: Fault) -> bool:
    agent = agents[fault.name]
    if fault in BAD:
        return bool(agent["rollout"] and agent["rollout"]["halt"])
    if fault.later:  # on a busy machine its stage may not have passed when it crashes
        return bool(agent["health"]["state"] == "Failed")
    return not agent["rollout"] and agent["health"]["state"] == "Healthy"


def _difference(agent: dict[str, Any], fault: Fault) -> str:
    """How the shown state of an agent differs from the expected one; empty if it does not."""
    state, message = agent["health"]["state"], agent["health"]["message"]
    if fault not in BAD:
        return "" if (state == "Failed") is fault.later else f"{fault.name}: {state}: {message}"
    halt = agent["rollout"]["halt"]
    is_halted = state == "Failed" and halt["stage"] == "canary" and fault.message in halt["message"]
    blames = {one["blame"] for one in halt["nodes"]}
    return "" if is_halted and blames == {"template"} else f"{fault.name}: {state}: {halt}"


def _is_shown(lab: Lab, fault: Fault) -> None:
    """Every command and the page have the words of Kubernetes."""
    words = ("-n", "default", "--state-namespace", "service-test")
    status = lab.command("status", f"ds/{fault.name}", *words)
    waited = lab.command("wait", f"ds/{fault.name}", "--timeout", "2m", *words)
    for text in (status.out, waited.out + waited.err, lab.shown(fault.name)):
        assert fault.message in text, fault.name
    assert waited.code == 1
    lab.until(partial(_is_explained, lab, fault))


def _is_published(forge: Server, commit: str, agents: dict[str, Any]) -> None:
    """The status of the commit is the message of one agent, the first that failed."""
    status = [one for one in forge.statuses if one["sha"] == commit][-1]
    assert status["state"] == "failed"
    name, _, message = status["description"].removeprefix("default/").partition(": ")
    assert agents[name]["health"]["message"].startswith(message.removesuffix("…"))


def test_without_stages_the_cause_is_shown_and_a_revert_heals(tmp_path: Path) -> None:
    with laboratory(tmp_path, "full") as lab:
        _start(lab, staged=False)
        lab.upstream.commit(files(changed=True, staged=False))
        for fault in (one for one in FAULTS if one.message):
            lab.until(partial(_is_explained, lab, fault))
        lab.upstream.commit(files(changed=False, staged=False))
        lab.until(lab.are_healthy)


def _is_explained(lab: Lab, fault: Fault) -> bool:
    """Whether the status of a node has the words of Kubernetes."""
    status = lab.command("status", f"ds/{fault.name}", "-n", "default", "-o", "json").json
    return any(fault.message in one["message"] for one in status["nodes"])
