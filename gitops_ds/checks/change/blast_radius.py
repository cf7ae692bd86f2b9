"""The effect of a change on the nodes of a cluster, and the drift of the cluster from the base."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gitops_ds.apimachinery import capacity, node_pools
from gitops_ds.checks.change import regressions
from gitops_ds.checks.engine.change_context import ChangeSides
from gitops_ds.checks.engine.rule import POD, Violation, pod
from gitops_ds.model.objects import Body, Key, show_path

# The accepted additional requests over all nodes, in thousandths: 50 cores, 100 GiB.
_BUDGET: Final = {"cpu": 50_000, "memory": 100 * 1024**3 * 1000}


def within_budget(sides: ChangeSides) -> Iterator[Violation]:
    """DS606: the additional requests of a change over all its nodes."""
    for key, manifest in sides.head.items():
        nodes = sides.after.eligible.get(key, frozenset())
        was = sides.base.get(key)
        if not nodes or sides.census is None or (was and was.digest == manifest.digest):
            continue
        before = len(sides.before.eligible.get(key, frozenset()))
        for resource, most in _BUDGET.items():
            now, then = (
                _requests(manifest.body, resource),
                _requests(was.body, resource) if was else 0,
            )
            more = now * len(nodes) - then * before
            if more > most:
                total, each = regressions.amount(resource, more), regressions.amount(resource, now)
                message = (
                    f"+{total} of {resource} over the cluster: {each} on each of "
                    f"{node_pools.summary(nodes, sides.census, shown=0)}"
                )
                yield Violation((*POD, "containers"), message, object=key)


def _requests(body: Body, resource: str) -> int:
    try:
        return capacity.requested(pod(body)).get(resource, 0)
    except ValueError:  # DS010 reports invalid quantities
        return 0


def keeps_its_nodes(sides: ChangeSides) -> Iterator[Violation]:
    """DS705: nodes that lose an agent which the change keeps."""
    if sides.census is None:
        return
    for key, nodes in sides.after.eligible.items():
        lost = sides.before.eligible.get(key, frozenset()) - nodes
        if lost and not any(
            lost <= sides.after.eligible.get(other, frozenset()) for other in _siblings(key, sides)
        ):
            message = (
                f"{node_pools.summary(lost, sides.census)} {'lose' if len(lost) > 1 else 'loses'} "
                f"the agent"
            )
            yield Violation(POD, message, object=key)


def _siblings(key: Key, sides: ChangeSides) -> list[Key]:
    """The other variants of the agent. A node that changes from one variant to another keeps the
    agent.
    """
    agent = sides.head[key].agent
    return [
        other
        for other, manifest in sides.head.items()
        if agent and manifest.agent == agent and other != key
    ]


def matches_the_base(sides: ChangeSides) -> Iterator[Violation]:
    """DS708: drift of the objects that the change touches."""
    for key, paths in sides.drift.items():
        manifest, was = sides.head.get(key), sides.base.get(key)
        if paths and (manifest is None or was is None or manifest.digest != was.digest):
            fields = node_pools.listed([show_path(path) for path in paths])
            message = (
                f"{fields} changed in the cluster: the merge reverts that, or fails with a conflict"
            )
            yield Violation(paths[0] if manifest else (), message, object=key)
