"""The list of all rules, as docs/rules.md shows it."""

from __future__ import annotations

from gitops_ds.validate import rules
from gitops_ds.validate.rule import Rule

_HEAD = """# Rules

`gitops-ds check --explain DS202` prints a rule's page: why, what is wrong, what is right, and who says so. A finding of a rule that
is *refused* keeps a commit from being deployed, for the API server, or the creation of every pod, would refuse it. *Advice* never
does; it is an error only for agents with a class, or with `profile: strict`.

| rule | finds where not so | kind | severity | on |
|---|---|---|---|---|
"""


def as_markdown() -> str:
    """The whole page."""
    return _HEAD + "".join(map(_row, sorted(rules.RULES, key=lambda rule: rule.id)))


def _row(rule: Rule) -> str:
    severity = ", ".join((rule.severity, *(f"{name}: {severity}" for name, severity in sorted(rule.classes.items()))))
    page = f"[{rule.id}](../gitops_ds/validate/pages/{rule.id}.md)"
    return f"| {page} | {rule.summary} | {'refused' if rule.refused else 'advice'} | {severity} | {'yes' if rule.on else 'no'} |\n"
