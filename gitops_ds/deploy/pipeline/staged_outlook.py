"""The previews of the staged rollouts of changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gitops_ds.checks.engine.rule import template
from gitops_ds.core.change import Change, Operation, StagedPreview
from gitops_ds.core.live import Node
from gitops_ds.core.objects import Body, Key
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import defaults
from gitops_ds.rollouts.decisions import staged_forecast
from gitops_ds.rollouts.decisions.staged_forecast import RolloutNodes
from gitops_ds.rollouts.state import daemonset_statements, target_revisions


@dataclass
class StagedPreviews:
    """Previews of rollouts. Equal policies over equal nodes are simulated once."""

    # The nodes are referenced, so that their id is not reused.
    _known: dict[tuple[object, ...], tuple[Sequence[Node], StagedPreview]] = field(
        default_factory=dict
    )

    def over(
        self,
        changes: Iterable[Change],
        before: Mapping[Key, Body],
        bundle: Bundle,
        nodes: Sequence[Node],
    ) -> list[Change]:
        """The changes, with the preview of each that begins a staged rollout.

        `before` are the objects before the change; a DaemonSet outside of it is created without
        stages. Without `nodes` the previews have only the stages.
        """
        return [
            replace(change, stages=self._of(change, before[change.key], bundle, nodes))
            if change.key in before and is_staged(change, bundle)
            else change
            for change in changes
        ]

    def _of(
        self, change: Change, old: Body, bundle: Bundle, nodes: Sequence[Node]
    ) -> StagedPreview:
        document = bundle.rollouts[bundle.manifests[change.key].agent]
        pools = bundle.cluster.pools
        spec = template(old).get("spec") or {}
        key = (
            target_revisions.policy_text(document, pools),
            repr([spec.get(part) for part in ("nodeSelector", "affinity", "tolerations")]),
            # Fields of the spec that affect tolerations.
            repr(spec.get("hostNetwork")),
            (old.get("spec") or {}).get("minReadySeconds"),
            id(nodes),
        )
        if key not in self._known:
            preview = staged_forecast.simulate(
                defaults.defaulted(old),
                template(defaults.defaulted(bundle.manifests[change.key].body)),
                rollout_policy.decode(document),
                RolloutNodes(nodes, pools),
            )
            self._known[key] = nodes, preview
        return self._known[key][1]


def is_staged(change: Change, bundle: Bundle) -> bool:
    """Whether a change starts a staged rollout: it sets a target revision, or is not divided into
    stages yet.
    """
    manifest = bundle.manifests.get(change.key)
    if (
        change.operation is not Operation.UPDATE
        or change.manifest is None
        or manifest is None
        or not change.key.is_daemonset
        or manifest.agent not in bundle.rollouts
    ):
        return False
    annotations = (change.manifest.body.get("metadata") or {}).get("annotations") or {}
    if daemonset_statements.has_policy(annotations):
        return daemonset_statements.has_target(annotations)
    return change.rollout is not None and change.rollout.rolls
