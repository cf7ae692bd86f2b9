"""The state of a deployer: what survives a restart and is neither in Git nor on the objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gitops_ds.model.objects import CommitId, Digest, Key
from gitops_ds.model.skipped import DriftPolicy


@dataclass(frozen=True, slots=True)
class HeldCommit:
    """A commit that is not to be applied again, why, and since when (seconds since 1970)."""

    commit: CommitId
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class KnownDrift:
    """Drift that stands: what is done about it, since when (seconds since 1970), and what it is in
    words.
    """

    choice: DriftPolicy
    since: float
    words: str


@dataclass(frozen=True, slots=True)
class Generation:
    """The metadata.generation of a DaemonSet when it was last applied or compared, and the commit
    that it carried then.

    The API server raises the generation with every change of the spec, whoever makes it:
    https://kubernetes.io/docs/reference/using-api/api-concepts/ and apps/v1 DaemonSet's
    status.observedGeneration.
    """

    generation: int
    commit: CommitId


@dataclass(frozen=True, slots=True)
class DeployerState:
    """All that must survive a restart and is not in Git or on the objects themselves.

    `inventory` names what was applied and not yet deleted, `agents` the agent of the repository
    that an object of it came from; `digests` the manifest of each as it was last applied;
    `revisions`, for each DaemonSet, the commit behind every revision number; `drift` is what
    somebody changed and is left so; `approved` are the objects whose deletion a person agreed to,
    until they are gone; `waiting` those that are left as they are because they, or the whole
    repository, are suspended; `generations` those of the DaemonSets that were applied. `version` is
    the resourceVersion that this was read at, empty for new.
    """

    repository: str = ""
    cluster: str = ""
    last_good: CommitId | None = None
    last_attempted: CommitId | None = None
    held: tuple[HeldCommit, ...] = ()
    inventory: frozenset[Key] = frozenset()
    agents: Mapping[Key, str] = field(default_factory=dict)
    digests: Mapping[Key, Digest] = field(default_factory=dict)
    revisions: Mapping[Key, Mapping[int, CommitId]] = field(default_factory=dict)
    drift: Mapping[Key, KnownDrift] = field(default_factory=dict)
    approved: frozenset[Key] = frozenset()
    waiting: frozenset[Key] = frozenset()
    generations: Mapping[Key, Generation] = field(default_factory=dict)
    version: str = ""
