"""The required agents: those that Git requires, the nodes on which one is required, and the pods
that are the agent.

They follow from the selected commit of each repository and from what the service recorded when it
applied it. The DaemonSet in the cluster adds nodes for a limited time, and removes none: others may
write it. A pod is the agent if it belongs to the DaemonSet and runs the containers of a recorded
template; its labels only name the one to compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.daemonset import DaemonSet, Pod, PodContent
from gitops_ds.core.deployer_state import TEMPLATES, DeployerState
from gitops_ds.core.live import Node, Revision
from gitops_ds.core.objects import CONTROLLER_REVISION, Body, Key, annotations_of
from gitops_ds.core.required_in_git import MOST_CONTENTS, AgentRecord, RequiredInGit
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import daemonsets, node_eligibility, pod_contents
from gitops_ds.kube.apimachinery.node_eligibility import Placement, Placer
from gitops_ds.rollouts.state import proofs, target_revisions

# What `node_eligibility.read` reads of the spec of a template.
_PLACEMENT = ("nodeName", "nodeSelector", "tolerations", "hostNetwork")


def record_of(
    body: Body, *, staged: bool = False, before: AgentRecord | None = None
) -> AgentRecord:
    """The record of a DaemonSet that Git requires; `before` is an earlier one, whose templates it
    keeps.
    """
    spec = body.get("spec") or {}
    template = spec.get("template") or {}
    earlier = before.contents if before is not None else ()
    contents = dict.fromkeys((pod_contents.of_template(template), *earlier))
    return AgentRecord(
        {"spec": _placement(template.get("spec") or {})},
        tuple(contents)[:MOST_CONTENTS],
        spec.get("minReadySeconds") or 0,
        suspended=str(annotations_of(body).get(names.SUSPEND) or "").lower() == "true",
        staged=staged,
    )


def _placement(pod_spec: Body) -> dict[str, Any]:
    """The fields of a pod's spec that select nodes."""
    chosen = {name: pod_spec[name] for name in _PLACEMENT if pod_spec.get(name)}
    by_node = (pod_spec.get("affinity") or {}).get("nodeAffinity")
    return chosen | ({"affinity": {"nodeAffinity": by_node}} if by_node else {})


def wanted_by(bundle: Bundle) -> Mapping[Key, AgentRecord]:
    """The agents that a commit requires."""
    return {
        key: record_of(one.body, staged=one.agent in bundle.rollouts)
        for key, one in bundle.manifests.items()
        if key.is_daemonset and daemonsets.is_required_for_work(one.body)
    }


def required_by(
    state: DeployerState, wanted: Mapping[Key, AgentRecord] | None, *, followed: bool
) -> Iterator[RequiredInGit]:
    """The agents that a repository requires; `wanted` by its selected commit, None while that is
    not read. Who writes templates into the cluster requires none.
    """
    if state.repository == TEMPLATES:
        return
    revisions = [key for key in state.inventory if key.kind == CONTROLLER_REVISION.kind]
    applied = state.required or {}
    for key in sorted(applied if wanted is None else wanted):
        yield RequiredInGit(
            key,
            None if wanted is None else wanted[key],
            applied.get(key),
            state.templates.get(key, TemplateHistory()),
            frozenset(
                revision.name for revision in revisions if revision.namespace == key.namespace
            ),
            followed,
        )


def of_states(states: Iterable[DeployerState]) -> Mapping[Key, RequiredInGit]:
    """The agents that the stored states require."""
    return {
        agent.key: agent for state in states for agent in required_by(state, None, followed=True)
    }


NO_HASHES: frozenset[str] = frozenset()


class CountedTemplate(msgspec.Struct, frozen=True):
    """A template whose pods are the agent, by their content. Of an agent with a rollout policy only
    pods with these hashes are compared; None for any. `pinned`: only the pods that a rollout made
    count, not those of an edit, which may be on a node whose stage is not open.
    """

    content: PodContent
    hashes: frozenset[str] | None = None
    pinned: bool = False

    def may_be_of(self, pod: Pod) -> bool:
        """Whether the labels of a pod name this template."""
        named = self.hashes is None or pod.hash in self.hashes
        return named and (not self.pinned or pod.pinned)


class PodTemplates(msgspec.Struct, frozen=True):
    """The templates whose pods are the agent, newest first, and why no further pod comes (`note`),
    else empty. `stuck`: by Git, only a person can change that. `targets` are the hashes of the pods
    of a rollout in progress.
    """

    counted: tuple[CountedTemplate, ...] = ()
    note: str = ""
    stuck: bool = False
    targets: frozenset[str] = NO_HASHES


class RequiredAgent(msgspec.Struct, frozen=True):
    """A required agent: by the records it is required where one of `placers` places it. `live` is
    the placer of its DaemonSet if that is another one. `since` is when it was first seen to be
    missing in the cluster, in seconds since 1970, 0 for one that is there.
    """

    key: Key
    uid: str
    placers: tuple[Placer, ...]
    min_ready_seconds: int = 0
    templates: PodTemplates = PodTemplates()
    live: Placer | None = None
    since: float = 0.0

    def is_required_on(self, node: Node) -> bool:
        """Whether Git requires it on the node."""
        return any(placer.place(node) is Placement.RUN for placer in self.placers)

    def is_edited_onto(self, node: Node) -> bool:
        """Whether only an edit in the cluster places it on the node."""
        if self.live is None or self.live.place(node) is not Placement.RUN:
            return False
        return not self.is_required_on(node)

    def template_of(self, pod: Pod, mirrors: Sequence[str] = ()) -> PodContent | None:
        """The template that makes a pod the agent; None for another pod."""
        for template in self._named_by(pod):
            if pod.content and not pod_contents.difference(template.content, pod.content, mirrors):
                return template.content
        return None

    def difference(self, pod: Pod, mirrors: Sequence[str] = ()) -> str:
        """Why a pod is not the agent, by the newest template that its labels name."""
        first = next(self._named_by(pod), None)
        if first is not None and pod.content is not None:
            return pod_contents.difference(first.content, pod.content, mirrors)
        return "its pod has neither the proven template nor that of an opened stage"

    def _named_by(self, pod: Pod) -> Iterator[CountedTemplate]:
        return (template for template in self.templates.counted if template.may_be_of(pod))


def agent_of(
    required: RequiredInGit,
    daemonset: DaemonSet | None,
    revisions: Sequence[Revision] = (),
    since: float = 0.0,
) -> RequiredAgent:
    """The required agent, with its DaemonSet and the revisions of its namespace. `since` is when
    the DaemonSet was first seen to be missing; one that is being deleted makes no further pods.
    """
    newest, placers = required.records[0], _placers(required)
    if daemonset is None or daemonset.deleting:
        return RequiredAgent(
            required.key,
            "",
            placers,
            newest.min_ready_seconds,
            _missing(required),
            since=since,
        )
    templates = PodTemplates(_any_of(required))
    if newest.staged:
        templates = _staged(required, daemonset, revisions)
    if newest.suspended:
        templates = replace(templates, note="it is suspended", stuck=True)
    live = node_eligibility.read(daemonset.template)
    return RequiredAgent(
        required.key,
        daemonset.uid,
        placers,
        newest.min_ready_seconds,
        templates,
        None if live in placers else live,
    )


def _placers(required: RequiredInGit) -> tuple[Placer, ...]:
    """Of each record; with a rollout policy that of the proven template, which nodes get that
    join.
    """
    templates = [record.placement for record in required.records]
    if required.records[0].staged and required.history.proof is not None:
        templates = [required.history.template]
    placers: list[Placer] = []
    for template in templates:
        if (placer := node_eligibility.read(template)) not in placers:
            placers.append(placer)
    return tuple(placers)


def _missing(required: RequiredInGit) -> PodTemplates:
    """One that was applied is created again; its deletion states nothing about the agent."""
    if required.applied is None or not required.followed:
        return PodTemplates(note="its DaemonSet is not applied", stuck=True)
    return PodTemplates(note="its DaemonSet was deleted")


def _any_of(required: RequiredInGit) -> tuple[CountedTemplate, ...]:
    """The recorded templates: without a rollout policy nodes get each one at once."""
    contents = dict.fromkeys(content for record in required.records for content in record.contents)
    return tuple(map(CountedTemplate, contents))


def _staged(
    required: RequiredInGit, daemonset: DaemonSet, revisions: Sequence[Revision]
) -> PodTemplates:
    """The proven template by the record, and the target of its rollout: pods of the target exist
    only on nodes of an opened stage, and after a halt they count no longer.

    The annotations of the DaemonSet only name the target; it must be one that was applied.
    """
    proof = required.history.proof
    if proof is None:
        return PodTemplates()
    hashes = proofs.hashes_in_force(proof, revisions)
    proven = CountedTemplate(pod_contents.of_template(required.history.template), hashes)
    by_record = proofs.with_proof(daemonset, proof)
    target = target_revisions.target_of(by_record, revisions)
    if target is None or not target.staged:
        return PodTemplates((proven,))
    content = pod_contents.of_template(target.template)
    is_recorded = any(content in record.contents for record in required.records)
    if target.revision not in required.targets and not is_recorded:
        return PodTemplates((proven,))
    record = target_revisions.record_of(revisions, target)
    if record.halt is not None:
        note = f"its rollout is halted: stage {record.halt.stage}: {record.halt.message}"
        return PodTemplates((proven,), note, stuck=True)
    new = CountedTemplate(content, target.hashes - hashes, pinned=not record.early)
    return PodTemplates((new, proven), targets=target.hashes - hashes)
