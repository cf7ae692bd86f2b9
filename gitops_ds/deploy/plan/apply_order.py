"""The order of writes: objects that others need come first; agents with dependencies are written in
waves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gitops_ds.core.change import Change, Operation
from gitops_ds.core.objects import Key
from gitops_ds.core.sources.bundle import Manifest

# A DaemonSet's pods need all kinds before it in this list; other kinds come after it. Equal to the
# order of Helm (InstallOrder in pkg/release/util/kind_sorter.go) and Flux (sort.go in
# github.com/fluxcd/pkg/ssa); admission webhooks come last, because they may refuse objects that
# they need themselves.
_ROW = (
    ("", "Namespace"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("node.k8s.io", "RuntimeClass"),
    ("storage.k8s.io", "StorageClass"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("", "ResourceQuota"),
    ("", "LimitRange"),
    ("", "ServiceAccount"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("", "ConfigMap"),
    ("", "Secret"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("", "Service"),
    ("apps", "ControllerRevision"),  # a DaemonSet names the target revision of its rollout
    ("apps", "DaemonSet"),
)
_RANK = {kind: rank for rank, kind in enumerate(_ROW)}
LAST = len(_ROW)
_WEBHOOKS = frozenset(("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"))


def rank(key: Key) -> int:
    """The position of a kind in the order."""
    after = LAST + (key.group == "admissionregistration.k8s.io" and key.kind in _WEBHOOKS)
    return _RANK.get((key.group, key.kind), after)


def waves(manifests: Iterable[Manifest]) -> Mapping[str, int]:
    """The wave of each agent: 0 without dependencies, else one more than its last dependency's.

    Cycles are findings of the render; an agent in a cycle follows the agents outside of it.
    """
    needs: dict[str, frozenset[str]] = {}
    for manifest in manifests:
        if manifest.agent:
            needs[manifest.agent] = needs.get(manifest.agent, frozenset()) | frozenset(
                manifest.depends_on
            )
    placed: dict[str, int] = {}
    waiting = dict(needs)
    while waiting:
        free = {
            agent for agent, others in waiting.items() if not (others & waiting.keys()) - {agent}
        } or set(waiting)
        for agent in free:
            placed[agent] = 1 + max(
                (placed[other] for other in needs[agent] if other in placed), default=-1
            )
        waiting = {agent: others for agent, others in waiting.items() if agent not in free}
    return placed


def ordered(changes: Iterable[Change], wave_of: Mapping[str, int]) -> tuple[Change, ...]:
    """Writes by wave of their agent, kind and name; then the deletes in reverse order."""

    def place(change: Change) -> tuple[int, int, Key]:
        agent = change.manifest.agent if change.manifest else ""
        return wave_of.get(agent, 0), rank(change.key), change.key

    every = sorted(changes, key=place)
    ends = [change for change in every if change.operation is Operation.DELETE]
    return (
        *(change for change in every if change.operation is not Operation.DELETE),
        *reversed(ends),
    )
