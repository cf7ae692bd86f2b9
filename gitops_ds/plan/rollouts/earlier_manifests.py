"""Whether a commit gives agents only manifests that the cluster had before. Pure.

Equal files are not enough: a template is rendered from several, and two of them may never have been
applied together.
"""

from __future__ import annotations

from collections.abc import Mapping

from gitops_ds.model.objects import Digest, Key
from gitops_ds.model.sources.bundle import Bundle


def has_only(tip: Bundle, applied: Bundle, earlier: Bundle) -> bool:
    """Whether every agent of the tip has all of its manifests, and its rollout policy, as in the
    applied commit or as in the earlier one.
    """
    agents = {manifest.agent for one in (tip, applied) for manifest in one.manifests.values()}
    return all(
        _of(tip, agent) in (_of(applied, agent), _of(earlier, agent)) for agent in sorted(agents)
    )


def _of(bundle: Bundle, agent: str) -> tuple[Mapping[Key, Digest], object]:
    """The manifests of an agent, and its rollout policy."""
    policy = bundle.rollouts.get(agent)
    manifests = (one for one in bundle.manifests.values() if one.agent == agent)
    return {one.key: one.digest for one in manifests}, policy.document if policy else None
