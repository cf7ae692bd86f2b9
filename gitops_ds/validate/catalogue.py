"""The list of all rules, as docs/rules.md shows it."""

from __future__ import annotations

from gitops_ds.validate import changes, custom, fleet, promotion, reading, repository_rules, rules, suppressions
from gitops_ds.validate.rule import Rule
from gitops_ds.validate.sides import ChangeRule, ReachRule
from gitops_ds.validate.whole import FleetRule

Row = Rule | FleetRule | ChangeRule | ReachRule

_HEAD = """# Rules

`gitops-ds check --explain DS202` prints a rule's page: why, what is wrong, what is right, and who says so. A finding of a rule that
is *refused* keeps a commit from being deployed, for the API server, or the creation of every pod, would refuse it. *Advice* never
does; it is an error only for agents with a class, or with `profile: strict`.

`rules: {DS411: true, DS405: false}` in `gitops-ds.yaml` switches advice on and off. For leaving single
findings alone see [DS902](../gitops_ds/validate/pages/DS902.md).

| rule | finds where not so | kind | severity | on |
|---|---|---|---|---|
"""


def as_markdown() -> str:
    """The whole page."""
    every: tuple[Row, ...] = (
        *reading.RULES,
        *rules.RULES,
        *fleet.RULES,
        *changes.RULES,
        *promotion.RULES,
        *repository_rules.RULES,
        custom.RULE,
        *suppressions.RULES,
        rules.CRASHED,
    )
    return _HEAD + "".join(_row(rule) for rule in sorted(every, key=lambda rule: rule.id))


def _row(rule: Row) -> str:
    page = f"[{rule.id}](../gitops_ds/validate/pages/{rule.id}.md)"
    match rule:
        case Rule(refused=True) | ChangeRule(refused=True):
            kind = "refused"
        case _:
            kind = "advice"
    classes = rule.classes if isinstance(rule, Rule | FleetRule) else {}
    severity = ", ".join((rule.severity, *(f"{name}: {other}" for name, other in sorted(classes.items()))))
    return f"| {page} | {rule.summary} | {kind} | {severity} | {'yes' if rule.on else 'no'} |\n"
