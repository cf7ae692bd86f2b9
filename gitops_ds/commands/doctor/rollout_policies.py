"""Whether the service can measure the gates of the rollout policies of a repository, and whether
their stages can be approved.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator

import msgspec

from gitops_ds.commands.doctor.result import CheckVerdict, Line
from gitops_ds.model.rollouts import rollout_policy
from gitops_ds.model.rollouts.rollout_gates import ProbeKind
from gitops_ds.model.rollouts.rollout_policy import Gate
from gitops_ds.model.sources.bundle import Bundle
from gitops_ds.rollouts import measured_gates
from gitops_ds.service.rollouts import gate_meter
from gitops_ds.settings.metrics import MetricsSettings
from gitops_ds.settings.repository import RepositorySettings

_APPROVERS = "add them to repository.approvers; docs/guides/approvals.md"
_GATES = "docs/rollouts.md, section Gates; the rollout holds until it can be measured"


class _Used(msgspec.Struct, frozen=True):
    """A measured gate of a stage of an agent."""

    agent: str
    name: str
    kind: ProbeKind
    gate: Gate


async def gates(settings: MetricsSettings, bundles: Iterable[Bundle]) -> AsyncIterator[Line]:
    """One line for the Prometheus server and one for each webhook that is not permitted; none
    without measured gates.
    """
    used = tuple(one for bundle in bundles for one in _used(bundle))
    queries = [one for one in used if one.kind is ProbeKind.PROMETHEUS]
    if queries:
        first = queries[0]
        problem = await gate_meter.problem(settings)
        text = f"gate {first.name} of {first.agent} cannot be measured: {problem}"
        yield (
            Line("gates", CheckVerdict.BAD, text, _GATES)
            if problem
            else Line("gates", CheckVerdict.OK, "the Prometheus server answers queries")
        )
    for one in used:
        if one.kind is not ProbeKind.WEBHOOK or one.gate.webhook is None:
            continue
        if refused := gate_meter.refused(settings.webhooks, one.gate.webhook.url):
            text = f"gate {one.name} of {one.agent} cannot be measured: {refused}"
            yield Line("gates", CheckVerdict.BAD, text, _GATES)


def _used(bundle: Bundle) -> Iterator[_Used]:
    used: dict[tuple[str, str, ProbeKind], _Used] = {}
    for agent, document in bundle.rollouts.items():
        policy = rollout_policy.decode(document)
        for stage in policy.stages:
            for probe in measured_gates.probes_of(policy, stage):
                one = _Used(agent, probe.gate, probe.kind, policy.gate(probe.gate))
                used[agent, probe.gate, probe.kind] = one
    yield from used.values()


def approvers(
    repositories: Iterable[RepositorySettings], bundles: Iterable[Bundle]
) -> Iterator[Line]:
    """One line for each agent with a stage that no approver of the settings can approve; no lines
    without approvers in any repository.
    """
    names = {name for one in repositories for name in one.approvers}
    if not names:
        return
    for bundle in bundles:
        for agent, document in sorted(bundle.rollouts.items()):
            for stage in rollout_policy.decode(document).stages:
                unknown = set(stage.approval.from_) - names if stage.approval else set()
                if not unknown:
                    continue
                never = stage.approval is not None and unknown == set(stage.approval.from_)
                effect = "can never be approved" if never else "is not approved by all of its names"
                text = (
                    f"stage {stage.name} of {agent} {effect}: the settings have no approver "
                    f"{', '.join(sorted(unknown))}"
                )
                verdict = CheckVerdict.BAD if never else CheckVerdict.WARNING
                yield Line("approvers", verdict, text, _APPROVERS)
