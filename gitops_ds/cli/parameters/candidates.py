"""Completion of the names of objects, namespaces, contexts, clusters, agents and files.

A completion is silent and has a time limit: after an error, without a response of the cluster, and
with a prompt of a credential plugin there are no candidates.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from gitops_ds.core.objects import Body, Resource

SECONDS = 3.0  # at most, for the candidates of one word
DAEMONSET_PREFIXES = ("ds/", "daemonset/", "daemonsets/", "daemonset.apps/", "daemonsets.apps/")


def daemonsets(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of DaemonSets in the namespace of `-n`, with the typed prefix."""
    prefix = next((prefix for prefix in DAEMONSET_PREFIXES if incomplete.startswith(prefix)), "")
    return matching(incomplete, lambda: _with_prefix(prefix, _daemonsets(ctx)))


def daemonset_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The arguments of `get`: names, once each."""
    chosen = set(ctx.params.get(param.name or "") or ())
    return [name for name in daemonsets(ctx, param, incomplete) if name not in chosen]


def traced(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The argument of `trace`: a kind, then a name."""
    from gitops_ds.core.objects import POD

    kind, slash, _name = incomplete.partition("/")
    if not slash:
        return [kind for kind in ("ds/", "node/", "pod/", "commit/") if kind.startswith(incomplete)]
    if kind in ("node", "nodes", "no"):
        return matching(incomplete, lambda: _with_prefix(f"{kind}/", _nodes(ctx)))
    if kind in ("pod", "pods", "po"):
        return matching(
            incomplete, lambda: _with_prefix(f"{kind}/", _names(ctx, POD, _namespace(ctx)))
        )
    return matching(incomplete, lambda: _with_prefix(f"{kind}/", _daemonsets(ctx)))


def namespaces(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of namespaces; without permission to list them, those with a DaemonSet."""

    def read() -> Iterable[str]:
        from gitops_ds.core.errors import Forbidden
        from gitops_ds.core.objects import DAEMONSET, NAMESPACE

        try:
            return _names(ctx, NAMESPACE, "")
        except Forbidden:
            return (str(body["metadata"]["namespace"]) for body in _list(ctx, DAEMONSET, ""))

    return matching(incomplete, read)


def contexts(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of the contexts in the kubeconfig."""
    return matching(incomplete, lambda: _contexts(ctx.params.get("kubeconfig")))


def clusters(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of the files in `clusters/` of a repository that is a directory."""

    def read() -> Iterable[str]:
        from pathlib import Path

        start = Path(_repository(ctx) or ".").resolve()
        for root in (start, *start.parents):
            folder = root / str(ctx.params.get("path") or "") / "clusters"
            if folder.is_dir():
                return [file.stem for file in folder.glob("*.yaml")]
            if (root / ".git").exists():
                break
        return []

    return matching(incomplete, read)


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, which the shell completes itself."""
    return [CompletionItem(incomplete, type="file")]


def directories(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Directories, which the shell completes itself."""
    return [CompletionItem(incomplete, type="dir")]


def agents(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names of the agents of a repository that is a directory."""

    def read() -> Iterable[str]:
        from gitops_ds.deploy.pipeline import open_repository
        from gitops_ds.source.render import bundle

        inside = str(ctx.params.get("inside") or "")
        repository = open_repository.named(_repository(ctx), inside)
        if repository.directory is None:
            return []
        return bundle.agents(asyncio.run(open_repository.snapshot(repository, None)))

    return matching(incomplete, read)


def commands(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The commands, as after the name of the program."""
    top = ctx.find_root()
    return top.command.shell_complete(top, incomplete)


def _repository(ctx: click.Context) -> str | None:
    """The typed repository. After an option without its value, click leaves arguments in
    `args`.
    """
    params = ctx.params
    rest = ctx.args[0] if ctx.args and "repository" in params else None
    return params.get("directory") or params.get("repository") or rest


def _namespace(ctx: click.Context) -> str:
    params = ctx.params
    return "" if params.get("all_namespaces") else str(params.get("namespace") or "")


def _daemonsets(ctx: click.Context) -> Iterable[str]:
    from gitops_ds.core.objects import DAEMONSET

    return _names(ctx, DAEMONSET, _namespace(ctx))


def _nodes(ctx: click.Context) -> Iterable[str]:
    """Names of nodes; without permission to list them, those with a pod."""
    from gitops_ds.core.errors import Forbidden
    from gitops_ds.core.objects import NODE, POD

    try:
        return _names(ctx, NODE, "")
    except Forbidden:
        return filter(None, (str(pod["spec"].get("nodeName") or "") for pod in _list(ctx, POD, "")))


def _names(ctx: click.Context, resource: Resource, namespace: str) -> Iterable[str]:
    return (str(body["metadata"]["name"]) for body in _list(ctx, resource, namespace))


def _list(ctx: click.Context, resource: Resource, namespace: str) -> list[Body]:
    """Raises ClusterError."""
    from gitops_ds.core.cluster import Selection
    from gitops_ds.kube.client import connect

    connection = connect.Connection(ctx.params.get("kubeconfig"), ctx.params.get("context"))

    async def read() -> list[Body]:
        async with connect.reading(connection) as cluster:
            listing = await cluster.list(resource, Selection(namespace=namespace))
            return list(listing.items)

    return asyncio.run(read())


def _contexts(kubeconfig: str | None) -> Iterable[str]:
    """Read without the official package, which takes longer to load than a completion may."""
    from pathlib import Path

    from gitops_ds.yaml import parser

    files = kubeconfig or os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    for file in filter(None, files.split(os.pathsep)):
        with contextlib.suppress(OSError):
            for document in parser.read("", Path(file).read_bytes()).documents:
                yield from (
                    str(context["name"]) for context in document.value.get("contexts") or ()
                )


def _with_prefix(prefix: str, names: Iterable[str]) -> Iterable[str]:
    return (f"{prefix}{name}" for name in names)


def matching(
    incomplete: str, read: Callable[[], Iterable[str]], seconds: float = SECONDS
) -> list[str]:
    """The candidates that begin with the typed text, sorted; none after an error or after some
    seconds.
    """
    try:
        with _silent(), _limited(seconds):
            return sorted({name for name in read() if name.startswith(incomplete)})
    except Exception:
        return []


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Discards the stderr of credential plugins, which would appear in the prompt."""
    sys.stderr.flush()
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in the main thread after some seconds, also inside of a blocking call."""

    def expire(_: int, __: FrameType | None) -> None:
        raise TimeoutError

    if not hasattr(signal, "setitimer") or (
        threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    before: Any = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
