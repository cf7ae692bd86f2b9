"""`doctor` names the stages that no approver of the settings can approve."""

from __future__ import annotations

import pytest

from gitops_ds import render
from gitops_ds.commands.doctor import repositories
from gitops_ds.commands.doctor.result import CheckVerdict
from gitops_ds.settings.repository import ApproverSettings, RepositorySettings, VerifySettings
from tests.render import snapshots

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
    assert [one.verdict for one in lines] == ([verdict] if verdict else [])
    assert all("gpu of a" in one.message and "team-gpu" in one.message for one in lines)
