"""Rules over a change: an object of the base against that of the head, the effect on the nodes of a
cluster, and the drift of the cluster from the base.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gitops_ds.checks.change import regressions
from gitops_ds.checks.engine.contexts import ChangeRule, ChangeSides
from gitops_ds.checks.engine.rule import POD, Violation, pod, rule, rules_in, section
from gitops_ds.core import names
from gitops_ds.core.finding import Fix, Mend, Severity, advice, refused
from gitops_ds.core.objects import Body, Key, show_path
from gitops_ds.kube.apimachinery import capacity, label_selector, node_pools, quantities

# The accepted additional requests over all nodes, in thousandths: 50 cores, 100 GiB.
_BUDGET: Final = {"cpu": 50_000, "memory": 100 * 1024**3 * 1000}


@rule(
    advice("DS606", Severity.WARNING, "change requests many resources across the nodes", on=False)
)
def within_budget(sides: ChangeSides) -> Iterator[Violation]:
    """The additional requests of a change over all its nodes."""
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
                total, each = quantities.amount(resource, more), quantities.amount(resource, now)
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


@rule(advice("DS705", Severity.ERROR, "nodes lose the agent", on=False))
def keeps_its_nodes(sides: ChangeSides) -> Iterator[Violation]:
    """Nodes that lose an agent which the change keeps."""
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


@rule(advice("DS708", Severity.WARNING, "cluster differs from the base", on=False))
def matches_the_base(sides: ChangeSides) -> Iterator[Violation]:
    """Drift of the objects that the change touches."""
    for key, paths in sides.drift.items():
        manifest, was = sides.head.get(key), sides.base.get(key)
        if paths and (manifest is None or was is None or manifest.digest != was.digest):
            fields = node_pools.listed([show_path(path) for path in paths])
            message = (
                f"{fields} changed in the cluster: the merge reverts that, or fails with a conflict"
            )
            yield Violation(paths[0] if manifest else (), message, object=key)


_ANSWERED: Final = re.compile(r"\bDS702\s*[=:]\s*[^;\s]")


@rule(refused("DS103", "selector is immutable"))
def selector_stays(sides: ChangeSides) -> Iterator[Violation]:
    """The selector of an existing object is immutable."""
    for key, before, after in sides.both():
        if _selector(before) != _selector(after):
            message = (
                "the selector is immutable. Revert it, or replace the DaemonSet and keep "
                "its pods running meanwhile:"
                f" kubectl -n {key.namespace} delete ds {key.name} --cascade=orphan, then apply; "
                "pods that the new selector matches"
                " are adopted, the others must be deleted manually"
            )
            was = section(before.get("spec")).get("selector")
            yield Violation(
                ("spec", "selector"),
                message,
                object=key,
                fix=Fix("revert the selector", (Mend(("spec", "selector"), was),)),
            )


@rule(advice("DS701", Severity.ERROR, "agent is renamed"))
def no_rename(sides: ChangeSides) -> Iterator[Violation]:
    """A new name makes a new agent."""
    for new in sides.come():
        for old in sides.gone():
            if _same_agent(sides.base[old].body, sides.head[new].body):
                message = (
                    f"the agent seems to be {old} renamed: for a time each node runs both or "
                    f"neither. Keep the name, or rename in two steps"
                )
                yield Violation(("metadata", "name"), message, object=new, related=old)


@rule(advice("DS702", Severity.ERROR, "agent is removed"))
def stays(sides: ChangeSides) -> Iterator[Violation]:
    """An agent is removed. An annotation of the base that accepts it, or disables pruning,
    prevents the finding.
    """
    renamed = {
        old
        for new in sides.come()
        for old in sides.gone()
        if _same_agent(sides.base[old].body, sides.head[new].body)
    }
    for key in sides.gone():
        annotations = section(section(sides.base[key].body.get("metadata")).get("annotations"))
        answered = (
            _ANSWERED.search(str(annotations.get(names.IGNORE) or ""))
            or annotations.get(names.PRUNE) == "disabled"
        )
        if key not in renamed and not answered:
            yield Violation(
                (), "it is removed: with pruning its pods are deleted from every node", object=key
            )


def _selector(body: Body) -> frozenset[tuple[str, str, frozenset[str]]]:
    selector_value = label_selector.of_label_selector(
        section(section(body.get("spec")).get("selector"))
    )
    return frozenset(
        (requirement.key, requirement.operator, frozenset(requirement.values))
        for requirement in selector_value
    )


def _same_agent(before: Body, after: Body) -> bool:
    return _selector(before) == _selector(after) or _repositories(before) == _repositories(after)


def _repositories(body: Body) -> list[str]:
    """The images of the containers, without tag and digest."""
    images = [
        str(section(container).get("image") or "")
        for container in pod(body).get("containers") or ()
    ]
    return [
        image.partition("@")[0].rpartition("/")[0]
        + "/"
        + image.rpartition("/")[2].partition(":")[0]
        for image in images
    ]


RULES: Final[tuple[ChangeRule, ...]] = rules_in(globals(), vars(regressions))
