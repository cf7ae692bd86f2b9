"""`doctor` names the gates that the settings of the service cannot measure, and the stages that no
approver of the settings can approve.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gitops_ds.cli.doctor import repositories
from gitops_ds.cli.doctor.result import CheckVerdict, Line
from gitops_ds.service.settings import service as settings_of_service
from gitops_ds.service.settings.repository import (
    ApproverSettings,
    RepositorySettings,
    VerifySettings,
)
from gitops_ds.source import render
from tests.render import snapshots

STAGES = "stages: [{name: canary, gates: [flow]}]\n"
QUERY = STAGES + "gates: {flow: {prometheus: up, below: 1}}\n"
WEBHOOK = STAGES + "gates: {flow: {webhook: {url: 'https://gates.example.com/x'}}}\n"
UNUSED = "gates: {flow: {prometheus: up, below: 1}}\n"


def lines(policy: str, **metrics: Any) -> list[Line]:
    texts = {
        "gitops-ds.yaml": "version: v1\nname: fleet\n",
        "clusters/one.yaml": "{}\n",
        "agents/a/rollout.yaml": policy,
        "agents/a/daemonset.yaml": "apiVersion: apps/v1\nkind: DaemonSet\n"
        "metadata: {name: a, namespace: agents}\n",
    }
    bundle = render.render(snapshots.of_texts(texts), cluster="one")
    assert not bundle.findings
    settings = settings_of_service.parse({"metrics": metrics}).metrics

    async def found() -> list[Line]:
        return [line async for line in repositories.gate_lines(settings, [bundle])]

    return asyncio.run(found())


@pytest.mark.parametrize(
    ("policy", "metrics", "expected"),
    [
        (QUERY, {}, "gate flow of a cannot be measured: no Prometheus server"),
        (
            QUERY,
            {"prometheus": {"url": "http://127.0.0.1:1"}},
            "gate flow of a cannot be measured: Prometheus: unreachable",
        ),
        (
            WEBHOOK,
            {},
            "gate flow of a cannot be measured: host gates.example.com:443 of the webhook is not",
        ),
    ],
)
def test_a_gate_that_cannot_be_measured_is_named(
    policy: str, metrics: dict[str, Any], expected: str
) -> None:
    (line,) = lines(policy, **metrics)
    assert line.verdict is CheckVerdict.BAD
    assert line.message.startswith(expected)


@pytest.mark.parametrize(
    ("policy", "metrics"),
    [
        (STAGES.replace("flow", "pods"), {}),
        (UNUSED, {}),
        (WEBHOOK, {"webhooks": {"allow": ["gates.example.com"]}}),
        (WEBHOOK, {"webhooks": {"allow": ["gates.example.com:443"]}}),
    ],
)
def test_without_such_gates_no_line_is_printed(policy: str, metrics: dict[str, Any]) -> None:
    assert lines(policy, **metrics) == []


POLICY = "stages: [{name: canary}, {name: gpu, approval: {from: [FROM]}, nodes: {count: 1}}]\n"


@pytest.mark.parametrize(
    ("names", "configured", "verdict"),
    [
        ("team-gpu", ("team-a",), CheckVerdict.BAD),
        ("team-gpu, team-a", ("team-a",), CheckVerdict.WARNING),
        ("team-a", ("team-a",), None),
        ("team-gpu", (), None),
    ],
)
def test_a_stage_that_no_user_can_approve_is_named(
    names: str, configured: tuple[str, ...], verdict: CheckVerdict | None
) -> None:
    texts = {
        "gitops-ds.yaml": "version: v1\nname: fleet\n",
        "clusters/one.yaml": "{}\n",
        "agents/a/rollout.yaml": POLICY.replace("FROM", names),
        "agents/a/daemonset.yaml": "apiVersion: apps/v1\nkind: DaemonSet\n"
        "metadata: {name: a, namespace: agents}\n",
    }
    bundle = render.render(snapshots.of_texts(texts), cluster="one")
    assert not bundle.findings
    valid = {name: ApproverSettings(frozenset({"ada@example.com"})) for name in configured}
    settings = RepositorySettings(
        url="https://git.example.com/a",
        verify=VerifySettings(allowed_signers_file="/etc/signers"),
        approvers=valid,
    )
    lines = list(repositories.approver_lines([settings], [bundle]))
    assert [line.verdict for line in lines] == ([verdict] if verdict else [])
    assert all("gpu of a" in line.message and "team-gpu" in line.message for line in lines)
