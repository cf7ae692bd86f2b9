"""The state of a deployer that survives a restart and is neither in Git nor on the objects, and the
requests to the deployer.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gitops_ds.core import stated_reasons
from gitops_ds.core.objects import CommitId, Digest, Key
from gitops_ds.core.required_in_git import AgentRecord
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.core.rollouts.template_cause import TemplateCause
from gitops_ds.core.skip_reasons import DriftPolicy

TEMPLATES = "templates in the cluster"  # the repository in the state of their deployer


class KnownDrift(msgspec.Struct, frozen=True):
    """Uncorrected drift: its policy, the time of its detection (seconds since 1970), and its
    description.
    """

    choice: DriftPolicy
    since: float
    words: str


class Generation(msgspec.Struct, frozen=True):
    """The metadata.generation of a DaemonSet at the last apply or comparison, and its commit at
    that time.

    The API server increments the generation with every change of the spec, by any writer:
    https://kubernetes.io/docs/reference/using-api/api-concepts/ and apps/v1 DaemonSet's
    status.observedGeneration.
    """

    generation: int
    commit: CommitId


class DeployerState(msgspec.Struct, frozen=True):
    """The state that must survive a restart and is not in Git or on the objects themselves.

    `repository` is the address of the commits, and `path` the directory in it, None in a state of
    an earlier version. `inventory` has the objects that were applied and not yet deleted, `agents`
    the agent of the repository of each of them, `digests` the digest of the last applied manifest
    of each; `revisions`, for each DaemonSet, the commit of every revision number; `drift` is the
    uncorrected drift; `approved` are the objects whose deletion was approved, until they are gone;
    `waiting` the objects that are not written because they or the whole repository are suspended;
    `kept` those that left Git and are not deleted;
    `generations` those of the DaemonSets that were applied; `templates` what is proven about the
    templates of those with a rollout policy; `required` the agents that nodes with a startup taint
    wait for, as they were applied, None in a state of an earlier version. `version` is the
    resourceVersion of the stored state, empty for a new one.
    """

    repository: str = ""
    path: str | None = None
    cluster: str = ""
    last_good: CommitId | None = None
    last_attempted: CommitId | None = None
    inventory: frozenset[Key] = frozenset()
    agents: Mapping[Key, str] = msgspec.field(default_factory=dict)
    digests: Mapping[Key, Digest] = msgspec.field(default_factory=dict)
    revisions: Mapping[Key, Mapping[int, CommitId]] = msgspec.field(default_factory=dict)
    drift: Mapping[Key, KnownDrift] = msgspec.field(default_factory=dict)
    approved: frozenset[Key] = frozenset()
    waiting: frozenset[Key] = frozenset()
    kept: frozenset[Key] = frozenset()
    generations: Mapping[Key, Generation] = msgspec.field(default_factory=dict)
    templates: Mapping[Key, TemplateHistory] = msgspec.field(default_factory=dict)
    causes: Mapping[Key, TemplateCause] = msgspec.field(default_factory=dict)
    commits: Mapping[Key, Mapping[str, CommitId]] = msgspec.field(default_factory=dict)
    required: Mapping[Key, AgentRecord] | None = msgspec.field(default_factory=dict)
    version: str = ""

    @property
    def knows_required(self) -> bool:
        """Whether an apply has ended that recorded the required agents: before that agents may be
        missing of which nothing is known.
        """
        return self.last_attempted is not None and self.required is not None


class Steering(msgspec.Struct, frozen=True):
    """The requests in the annotations of a state's ConfigMap.

    `requested` is the value of a pending request; `held` are commits on hold, by their first seven
    or more digits; `approved` is the hash of a plan. `pushed` is the time at which another replica
    received a push, and its commit. `released` are commits that need not wait for other clusters.
    `suspend_reason` is why it is suspended, `hold_reasons` are those of commits on hold, as far as
    people stated them.
    """

    requested: str = ""
    suspended: bool = False
    approved: str = ""
    held: tuple[str, ...] = ()
    pushed: str = ""
    released: tuple[str, ...] = ()
    suspend_reason: str = ""
    hold_reasons: Mapping[str, str] = msgspec.field(default_factory=dict)

    def releases(self, commit: CommitId) -> bool:
        """Whether the commit need not wait for other clusters."""
        return any(commit.startswith(released) for released in self.released)

    def holds(self, commit: CommitId) -> bool:
        """Whether the commit is on hold."""
        return any(commit.startswith(held) for held in self.held)

    def hold_reason(self, commit: CommitId) -> str:
        """Why the commit is on hold; empty if none is stated."""
        return stated_reasons.of_commit(self.hold_reasons, commit)


class Push(msgspec.Struct, frozen=True):
    """The notification of a push to one repository. `commit` only limits how long to poll for it;
    it never selects the revision.
    """

    commit: CommitId | None = None
