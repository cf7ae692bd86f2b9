"""A change over all its clusters: the number of nodes that it restarts, and the order of
environments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gitops_ds.checks.engine.contexts import ClusterStep, PromotionRule
from gitops_ds.checks.engine.rule import POD, Violation, items, rule, rules_in, section, template
from gitops_ds.core.finding import Severity, advice
from gitops_ds.core.objects import Body, Key

_MOST_NODES: Final = 500
# Usual names of environments, in the order of promotion.
_ORDER: Final = (
    ("dev", "development", "sandbox", "lab"),
    ("test", "testing", "qa", "ci", "int", "integration"),
    ("staging", "stage", "stg", "preprod", "uat", "canary"),
    ("prod", "production", "prd", "live"),
)
PRODUCTION: Final = len(_ORDER) - 1


def rank(environment: str) -> int | None:
    """The position of an environment in the order of promotion, by its name (`eu-prod` is
    production); None for an unknown name.
    """
    words = environment.lower().replace("_", "-").split("-")
    return next(
        (place for place, names in enumerate(_ORDER) if any(word in names for word in words)), None
    )


@rule(advice("DS703", Severity.WARNING, "change restarts too many nodes at once", on=False))
def in_small_steps(steps: Iterable[ClusterStep]) -> Iterator[Violation]:
    """A change restarts too many nodes, or several production environments."""
    restarted: dict[Key, dict[str, int]] = {}
    production: dict[Key, list[ClusterStep]] = {}
    for step in steps:
        for key, _, _ in step.sides.rolling():
            if not _on_delete(step.sides.head[key].body):
                both = step.sides.before.eligible.get(
                    key, frozenset()
                ) & step.sides.after.eligible.get(key, frozenset())
                restarted.setdefault(key, {})[step.facts.name] = len(both)
                if rank(step.facts.environment) == PRODUCTION:
                    production.setdefault(key, []).append(step)
    for key, nodes in restarted.items():
        total = sum(nodes.values())
        if total > _MOST_NODES:
            where = f" in {len(nodes)} clusters" if len(nodes) > 1 else ""
            message = (
                f"the change restarts pods on {total:,} nodes{where}: split it into stages, or one "
                f"cluster at a time"
            )
            yield Violation(
                POD, message, object=key, cluster=max(nodes, key=lambda name: nodes[name])
            )
        environments = sorted({step.facts.environment for step in production.get(key, ())})
        if len(environments) > 1:
            message = (
                f"the change affects {' and '.join(environments)}: change one production "
                f"environment at a time"
            )
            yield Violation(POD, message, object=key, cluster=production[key][0].facts.name)


def _on_delete(body: Body) -> bool:
    return section(section(body.get("spec")).get("updateStrategy")).get("type") == "OnDelete"


@rule(
    advice("DS709", Severity.WARNING, "production is changed before earlier environments", on=False)
)
def promoted(steps: Iterable[ClusterStep]) -> Iterator[Violation]:
    """Production gets an image that the preceding environment does not have."""
    every = list(steps)
    for step in every:
        if rank(step.facts.environment) != PRODUCTION:
            continue
        for key, before, after in step.sides.rolling():
            earlier = _earlier(key, every)
            new = _images(after) - _images(before)
            if (
                earlier
                and new
                and not any(
                    new <= _images(template(earlier_step.sides.head[key].body))
                    for earlier_step in earlier
                )
            ):
                message = (
                    f"{', '.join(sorted(new))} is not in {earlier[0].facts.environment} yet: "
                    f"deploy it there first"
                )
                yield Violation((*POD, "containers"), message, object=key, cluster=step.facts.name)


def _earlier(key: Key, steps: Sequence[ClusterStep]) -> list[ClusterStep]:
    """The clusters with the agent in the last environment before production."""
    ranked = [
        (place, step)
        for step in steps
        if key in step.sides.head and (place := rank(step.facts.environment)) is not None
    ]
    before = [place for place, _ in ranked if place < PRODUCTION]
    return [step for place, step in ranked if before and place == max(before)]


def _images(of: Body) -> frozenset[str]:
    spec = section(of.get("spec"))
    return frozenset(
        str(container.get("image"))
        for container in (*items(spec.get("containers")), *items(spec.get("initContainers")))
    )


RULES: Final[tuple[PromotionRule, ...]] = rules_in(globals())
