"""The content of a commit for one cluster: manifests, and the source of each of their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gitops_ds.core.finding import Finding, Severity
from gitops_ds.core.live import Taint
from gitops_ds.core.objects import Body, CommitId, Digest, Key, Path
from gitops_ds.core.rollouts.cluster_report import NO_ORDER, ClusterOrder
from gitops_ds.core.skip_reasons import DriftPolicy, Skipped


class Pointer(msgspec.Struct, frozen=True):
    """A value in a file of the snapshot: the index of its document (from 0), and its path.

    The position (line, column) is computed from the bytes on demand. Only for a chart's template,
    which is not YAML, the `line` is stored.
    """

    file: str
    document: int
    path: Path
    line: int = 0

    def below(self, path: Path) -> Pointer:
        """The value at a path in this value."""
        return Pointer(self.file, self.document, self.path + path, self.line)


class Origin(msgspec.Struct, frozen=True):
    """The source of a manifest: one document, except for values set elsewhere.

    `set_by` maps a path of the rendered body to the pointers that set it, the effective one first:
    a parameter's value, an overridden layer, a patch. A path without an entry comes from the same
    path under `base`, or from its nearest parent with an entry.
    """

    base: Pointer
    set_by: Mapping[Path, tuple[Pointer, ...]] = msgspec.field(default_factory=dict)


class ManifestOrigin(msgspec.Struct, frozen=True):
    """The cluster object that a manifest comes from, as text; `commit` and `uid` identify its
    version.
    """

    commit: CommitId
    uid: str
    words: str


class Manifest(msgspec.Struct, frozen=True):
    """The wanted state of an object.

    `scope_unknown`: the kind is unknown here and the object has no namespace; only the cluster can
    decide whether it needs one (then `ClusterFacts.namespace`). `holder` is None for an object from
    Git.
    """

    key: Key
    body: Body
    digest: Digest
    origin: Origin
    agent: str = ""
    variant: str = ""
    depends_on: tuple[str, ...] = ()
    scope_unknown: bool = False
    holder: ManifestOrigin | None = None


class Requirement(msgspec.Struct, frozen=True):
    """A condition on one node label: key, operator (In, NotIn, Exists, DoesNotExist), values."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Pool(msgspec.Struct, frozen=True):
    """A named set of nodes: labels that all must match, and the declared number of nodes (None:
    unknown).

    Also the declared labels and taints of its nodes, and their capacity for pods (in thousandths of
    a resource's unit).
    """

    name: str
    match: tuple[Requirement, ...]
    nodes: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    allocatable: tuple[tuple[str, int], ...] = ()


class ClusterFacts(msgspec.Struct, frozen=True):
    """The repository's facts about a cluster (`clusters/NAME.yaml`); the name is empty for a
    repository without clusters.

    `namespace` is the default for objects without one, from the command line, the cluster or the
    repository, in this order. `order` is its place among the clusters of the repository.
    """

    name: str = ""
    environment: str = ""
    context: str = ""
    namespace: str = ""
    kubernetes: tuple[str, ...] = ()
    pools: tuple[Pool, ...] = ()
    ignore: tuple[Requirement, ...] = ()
    order: ClusterOrder = NO_ORDER


# Alternatives of conditions: at least one set must match as a whole.
Alternatives = tuple[tuple[Requirement, ...], ...]


class Custom(msgspec.Struct, frozen=True):
    """A rule that the repository defines (`custom:` of gitops-ds.yaml): a JSON Schema for objects
    of these kinds.

    `at` is its place in the file; with an empty `message` the message is the schema's.
    """

    name: str
    schema: Body
    at: Pointer
    kinds: tuple[str, ...] = ("DaemonSet",)
    severity: Severity = Severity.ERROR
    message: str = ""


class Bundle(msgspec.Struct, frozen=True):
    """All objects of one commit for one cluster, sorted by key.

    `owner_hint` is the repository's own name (`name:` of gitops-ds.yaml), else empty. `skipped` are
    YAML and JSON files without any Kubernetes object. `profile` is the repository's: `default` or
    `strict` (docs: checks); `rules` are those that it enables (possibly with settings) or disables,
    `custom` its own ones. `expected` has, by agent, the nodes that must get a pod (alternatives of
    conditions), and the nodes that must not. `drift` is the drift policy of agents with one.
    `refusals` are the skipped parts of a bundle of many sources; of the sources in `kept`
    (`configmap/NAMESPACE/NAME`) nothing is deleted. `rollouts` has the rollout policies by agent,
    `orders` the places of all clusters in their order. `consumed` are the files that kustomize and
    helm read; `unread` are files with objects that nothing reads, and their bytes.
    """

    commit: CommitId | None
    cluster: ClusterFacts
    manifests: Mapping[Key, Manifest]
    findings: tuple[Finding, ...] = ()
    skipped: tuple[str, ...] = ()
    owner_hint: str = ""
    held: Mapping[str, str] = msgspec.field(default_factory=dict)
    drift: Mapping[str, DriftPolicy] = msgspec.field(default_factory=dict)
    profile: str = "default"
    rules: Mapping[str, bool | Mapping[str, Any]] = msgspec.field(default_factory=dict)
    custom: tuple[Custom, ...] = ()
    expected: Mapping[str, tuple[Alternatives, Alternatives]] = msgspec.field(default_factory=dict)
    refusals: tuple[Skipped, ...] = ()
    kept: frozenset[str] = frozenset()
    rollouts: Mapping[str, Body] = msgspec.field(default_factory=dict)
    orders: Mapping[str, ClusterOrder] = msgspec.field(default_factory=dict)
    consumed: frozenset[str] = frozenset()
    unread: Mapping[str, bytes] = msgspec.field(default_factory=dict)
