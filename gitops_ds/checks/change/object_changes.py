"""Rules over a change: an object of the base against that of the head."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gitops_ds.apimachinery import label_selector
from gitops_ds.checks.change import blast_radius, regressions
from gitops_ds.checks.engine.change_context import ChangeRule, ChangeSides
from gitops_ds.checks.engine.rule import Violation, pod, section
from gitops_ds.model import names
from gitops_ds.model.finding import Fix, Mend, Severity
from gitops_ds.model.objects import Body

_ANSWERED: Final = re.compile(r"\bDS702\s*[=:]\s*[^;\s]")


def selector_stays(sides: ChangeSides) -> Iterator[Violation]:
    """DS103: the selector of an existing object is immutable."""
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


def no_rename(sides: ChangeSides) -> Iterator[Violation]:
    """DS701: a new name makes a new agent."""
    for new in sides.come():
        for old in sides.gone():
            if _same_agent(sides.base[old].body, sides.head[new].body):
                message = (
                    f"the agent seems to be {old} renamed: for a time each node runs both or "
                    f"neither. Keep the name, or rename in two steps"
                )
                yield Violation(("metadata", "name"), message, object=new, related=old)


def stays(sides: ChangeSides) -> Iterator[Violation]:
    """DS702: an agent is removed. An annotation of the base that accepts it, or disables pruning,
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
    return frozenset((one.key, one.operator, frozenset(one.values)) for one in selector_value)


def _same_agent(before: Body, after: Body) -> bool:
    return _selector(before) == _selector(after) or _repositories(before) == _repositories(after)


def _repositories(body: Body) -> list[str]:
    """The images of the containers, without tag and digest."""
    images = [str(section(one).get("image") or "") for one in pod(body).get("containers") or ()]
    return [
        image.partition("@")[0].rpartition("/")[0]
        + "/"
        + image.rpartition("/")[2].partition(":")[0]
        for image in images
    ]


RULES: Final = (
    ChangeRule(
        "DS103",
        Severity.ERROR,
        True,
        "selector is immutable",
        selector_stays,
    ),
    ChangeRule(
        "DS606",
        Severity.WARNING,
        False,
        "change requests many resources across the nodes",
        blast_radius.within_budget,
        on=False,
    ),
    ChangeRule("DS701", Severity.ERROR, False, "agent is renamed", no_rename),
    ChangeRule("DS702", Severity.ERROR, False, "agent is removed", stays),
    ChangeRule(
        "DS704",
        Severity.INFO,
        False,
        "pods restart without an effective change",
        regressions.restarts_for_something,
        on=False,
    ),
    ChangeRule(
        "DS705",
        Severity.ERROR,
        False,
        "nodes lose the agent",
        blast_radius.keeps_its_nodes,
        on=False,
    ),
    ChangeRule(
        "DS706",
        Severity.WARNING,
        False,
        "image is downgraded",
        regressions.images_go_forward,
        on=False,
    ),
    ChangeRule(
        "DS707",
        Severity.WARNING,
        False,
        "agent's requests or guarantees change a lot",
        regressions.requests_are_similar,
        on=False,
    ),
    ChangeRule(
        "DS708",
        Severity.WARNING,
        False,
        "cluster differs from the base",
        blast_radius.matches_the_base,
        on=False,
    ),
    ChangeRule(
        "DS710",
        Severity.WARNING,
        False,
        "change cannot be rolled back",
        regressions.way_back,
        on=False,
    ),
)
