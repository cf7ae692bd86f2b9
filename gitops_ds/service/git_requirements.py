"""What the deployers know about the agents that Git requires on a node, for the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gitops_ds.apimachinery import daemonsets
from gitops_ds.model.objects import Body, Key
from gitops_ds.model.sources.bundle import Manifest
from gitops_ds.service.runnable import DeployerPart


class GitRequirements:
    """The required agents of all repositories; `deployers` returns those of the service."""

    def __init__(self, deployers: Callable[[], Sequence[DeployerPart]]) -> None:
        self._deployers = deployers
        self._manifests: list[Mapping[Key, Manifest]] = []
        self._wanted: list[Body] = []

    def applied(self) -> bool:
        """Whether an apply of every repository has ended once, also in an earlier process: before
        that agents may be missing of which nothing is known. After a restart the commit must be
        read again, as far as Git can be reached.
        """
        return all(one.was_applied and _is_read(one) for one in self._deployers())

    def wanted(self) -> Sequence[Body]:
        """The DaemonSets in Git that are required for work; the same list until that changes."""
        loops = [one.loop for one in self._deployers()]
        manifests = [loop.manifests for loop in loops if loop is not None]
        if [id(one) for one in manifests] != [id(one) for one in self._manifests]:
            self._manifests = manifests
            self._wanted = [
                one.body
                for of_loop in manifests
                for key, one in of_loop.items()
                if key.is_daemonset and daemonsets.is_required_for_work(one.body)
            ]
        return self._wanted


def _is_read(deployer: DeployerPart) -> bool:
    """Whether the manifests of the repository are known, or reading them failed."""
    is_known = deployer.loop is not None and deployer.loop.cluster is not None
    return is_known or not deployer.unready
