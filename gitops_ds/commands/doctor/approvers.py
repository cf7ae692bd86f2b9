"""Whether the stages of the rollout policies of a repository can be approved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gitops_ds.commands.doctor.result import CheckVerdict, Line
from gitops_ds.model.rollouts import rollout_policy
from gitops_ds.model.sources.bundle import Bundle
from gitops_ds.settings.repository import RepositorySettings

_ADVICE = "add them to repository.approvers; docs/guides/approvals.md"


def examine(
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
                yield Line("approvers", verdict, text, _ADVICE)
