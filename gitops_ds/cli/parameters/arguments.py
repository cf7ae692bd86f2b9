"""The parameters of commands as frozen dataclasses: one for each command, composed of the groups in
this module.

`options` and `arguments` mirror each other: `options.connection` adds the options of
`ConnectionArgs`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.client.connect import Connection
    from gitops_ds.model.cluster import Cluster
    from gitops_ds.model.sources.bundle import ClusterFacts
    from gitops_ds.model.sources.repository_limits import AllowedRenderers
    from gitops_ds.pipeline.open_repository import RepositoryRef

A = TypeVar("A")


def typed(kind: type[A]) -> Callable[[Callable[[A], int]], Callable[..., int]]:
    """A decorator that passes click's parameters to the command as one `kind`."""

    def decorate(command: Callable[[A], int]) -> Callable[..., int]:
        @functools.wraps(command)
        def call(**parameters: Any) -> int:
            return command(kind(**parameters))

        return call

    return decorate


@dataclass(frozen=True, kw_only=True)
class CommonArgs:
    """The options of every command."""

    verbose: int
    quiet: bool


@dataclass(frozen=True, kw_only=True)
class AccessArgs:
    """The API server."""

    kubeconfig: str | None
    context: str | None

    def connection(self) -> Connection:
        """The connection to the API server."""
        from gitops_ds.client import connect

        return connect.Connection(self.kubeconfig, self.context)

    def open_cluster(
        self, facts: ClusterFacts | None = None
    ) -> AbstractAsyncContextManager[Cluster]:
        """The cluster; `facts` have the context for a command line without one."""
        from gitops_ds.client import connect

        return connect.opened(self.connection(), facts)


@dataclass(frozen=True, kw_only=True)
class ConnectionArgs(AccessArgs):
    """The API server and the namespace of the deployer's state."""

    state_namespace: str

    def connection(self) -> Connection:
        """The connection to the API server, and the namespace of the deployer's state."""
        from gitops_ds.client import connect

        return connect.Connection(self.kubeconfig, self.context, self.state_namespace)


@dataclass(frozen=True, kw_only=True)
class RepositoryArgs:
    """The repository that a command reads, and its revision."""

    repository: str | None
    directory: str | None
    revision: str | None
    path: str
    allowed: AllowedRenderers | None

    def repository_ref(self) -> RepositoryRef:
        """The repository; by default the Git work tree around the current directory."""
        from gitops_ds.pipeline import open_repository

        return open_repository.named(self.repository or self.directory, self.path, self.allowed)


@dataclass(frozen=True, kw_only=True)
class CommitTargetArgs:
    """The repository, cluster and namespace of a command that writes a commit."""

    directory: str | None
    path: str
    allowed: AllowedRenderers | None
    cluster: str
    namespace: str

    def repository_ref(self) -> RepositoryRef:
        """The repository; by default the Git work tree around the current directory."""
        from gitops_ds.pipeline import open_repository

        return open_repository.named(self.directory, self.path, self.allowed)
