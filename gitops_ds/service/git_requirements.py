"""The agents that nodes wait for, of all repositories of a service and of the states in its
namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from gitops_ds.core import errors
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.objects import Key
from gitops_ds.core.required_in_git import AgentRecord, RequiredInGit
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.service.runnable import DeployerPart
from gitops_ds.startup_taints import required_agents

# seconds between two reads of the states, which `gitops-ds apply` writes as well
READ_EVERY = 30.0


class GitRequirements:
    """The required agents. `deployers` returns those of the service; `load` reads the states by
    owner, and may raise ClusterError.
    """

    def __init__(
        self,
        deployers: Callable[[], Sequence[DeployerPart]],
        load: Callable[[], Awaitable[Mapping[str, DeployerState]]],
    ) -> None:
        self._deployers, self._load = deployers, load
        self._stored: Mapping[str, DeployerState] | None = None
        self._wanted: dict[str, tuple[Bundle, Mapping[Key, AgentRecord]]] = {}
        self._required: Mapping[Key, RequiredInGit] = {}

    async def follow(self, changed: Callable[[], None]) -> None:
        """Reads the stored states again and again until it is cancelled."""
        while True:
            with contextlib.suppress(errors.ClusterError):
                stored = await self._load()
                if stored != self._stored:
                    self._stored = stored
                    changed()
            await asyncio.sleep(READ_EVERY)

    def applied(self) -> bool:
        """Whether an apply of every repository has ended once, also in an earlier process: before
        that agents may be missing of which nothing is known. After a restart the commit must be
        read again, as far as Git can be reached.
        """
        if self._stored is None:
            return False
        deployers = self._deployers()
        if not deployers:
            return any(state.knows_required for state in self._stored.values())
        # a repository without the right to let nodes wait delays none
        requiring = [deployer for deployer in deployers if deployer.requires_agents]
        return all(deployer.knows_required and _is_read(deployer) for deployer in requiring)

    def required(self) -> Sequence[RequiredInGit]:
        """The required agents; an object stays the same until it changes."""
        before = self._required
        found: dict[Key, RequiredInGit] = {}
        for agent in self._find():
            known = before.get(agent.key)
            found.setdefault(agent.key, known if known is not None and known == agent else agent)
        self._required = found
        return tuple(found.values())

    def _find(self) -> Iterator[RequiredInGit]:
        """Those of the followed repositories first."""
        states, followed = dict(self._stored or {}), dict[str, Bundle | None]()
        for deployer in self._deployers():
            if (loop := deployer.loop) is None:
                continue
            if not deployer.requires_agents:
                states.pop(loop.owner, None)
            else:
                followed[loop.owner] = loop.bundle
                states[loop.owner] = loop.deployer_state or states.get(loop.owner, DeployerState())
        for owner in sorted(states, key=lambda owner: (owner not in followed, owner)):
            bundle = followed.get(owner)
            wanted = None if bundle is None else self._wanted_by(owner, bundle)
            yield from required_agents.required_by(
                states[owner], wanted, followed=owner in followed
            )

    def _wanted_by(self, owner: str, bundle: Bundle) -> Mapping[Key, AgentRecord]:
        known = self._wanted.get(owner)
        if known is None or known[0] is not bundle:
            known = self._wanted[owner] = bundle, required_agents.wanted_by(bundle)
        return known[1]


def _is_read(deployer: DeployerPart) -> bool:
    """Whether the manifests of the repository are known, or reading them failed."""
    is_known = deployer.loop is not None and deployer.loop.bundle is not None
    return is_known or not deployer.unready
