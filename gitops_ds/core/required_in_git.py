"""The agents that nodes wait for, by what only Git and the service write: a DaemonSet in the
cluster proves nothing, for others may write it.
"""

from __future__ import annotations

import msgspec

from gitops_ds.core.daemonset import PodContent
from gitops_ds.core.objects import Body, Key
from gitops_ds.core.rollouts.proven_templates import TemplateHistory

MOST_CONTENTS = 10  # templates of one agent


class AgentRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A required agent as Git has it, or as it was applied: the part of its template by which nodes
    are selected, and what its pods run, newest first: pods of earlier templates count until a
    rolling update replaces them. `staged`: it has a rollout policy.
    """

    placement: Body
    contents: tuple[PodContent, ...]
    min_ready_seconds: int = 0
    suspended: bool = False
    staged: bool = False


class RequiredInGit(msgspec.Struct, frozen=True):
    """An agent that Git requires: `wanted` by the selected commit, None while that is not read, and
    `applied` by the stored state, None before it was. `history` are its proven templates, `targets`
    the names of the target revisions that were applied in its namespace. `followed`: the service
    creates its DaemonSet again if that is deleted.
    """

    key: Key
    wanted: AgentRecord | None = None
    applied: AgentRecord | None = None
    history: TemplateHistory = TemplateHistory()
    targets: frozenset[str] = frozenset()
    followed: bool = True

    @property
    def records(self) -> tuple[AgentRecord, ...]:
        """What is known of it, newest first."""
        return tuple(template for template in (self.wanted, self.applied) if template is not None)
