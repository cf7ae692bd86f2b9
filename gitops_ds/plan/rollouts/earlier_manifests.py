"""Whether a commit has only manifests that the cluster had before. Pure.

Equal files are not enough: a template is rendered from several, and two of them may never have been
applied together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from gitops_ds.model.objects import Digest, Key
from gitops_ds.model.sources.bundle import Bundle


def has_only(tip: Bundle, applied: Bundle, earlier: Bundle) -> bool:
    """Whether every agent of the tip has all of its manifests, and its rollout policy, as in the
    applied commit or as in the earlier one.
    """
    now, before, earlier_ones = map(_by_agent, (tip, applied, earlier))
    return all(
        (now.get(agent, {}), _policy(tip, agent))
        in (
            (before.get(agent, {}), _policy(applied, agent)),
            (earlier_ones.get(agent, {}), _policy(earlier, agent)),
        )
        for agent in now.keys() | before.keys()
    )


def _by_agent(bundle: Bundle) -> Mapping[str, Mapping[Key, Digest]]:
    """The manifests of each agent."""
    agents: defaultdict[str, dict[Key, Digest]] = defaultdict(dict)
    for one in bundle.manifests.values():
        agents[one.agent][one.key] = one.digest
    return agents


def _policy(bundle: Bundle, agent: str) -> object:
    policy = bundle.rollouts.get(agent)
    return policy.document if policy else None
