"""The list of all rules, as docs/rules.md shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from gitops_ds.checks.change import object_changes, promotion
from gitops_ds.checks.cluster import cluster_rules
from gitops_ds.checks.engine import repository_rules, rule_table, suppressions
from gitops_ds.checks.engine.rule import Rule
from gitops_ds.checks.schema import custom_rules, parse_rules

_HEAD = """# Rules

`gitops-ds check --explain DS202` prints a rule's page: why, what is wrong, what is right, and who says so. A finding of a rule that
is *refused* keeps a commit from being deployed: it can't be rendered as it is meant, or the API server, or the creation of every
pod, would refuse it. *Advice* never does. The severity is what is printed; much advice is an error for agents with a class, or with
`profile: strict`.

`rules: {DS411: true, DS405: false}` in `gitops-ds.yaml` switches advice on and off. For leaving single
findings alone see [DS902](../gitops_ds/checks/pages/DS902.md).

The table says what has to hold; a finding says where it does not. A rule whose parts weigh differently has a line for each.

| rule | what has to hold | kind | severity | on |
|---|---|---|---|---|
"""


# What reading a repository's files tells (gitops_ds/source), before there is anything for a rule to
# look at.
OF_FILES: Final[Mapping[str, str]] = {
    "SRC001": "a symbolic link is not followed: put the file itself there",
    "SRC002": "a submodule is not read: put its files into the repository, or manage it as a "
    "repository of its own",
    "SRC003": "a file is larger than what is read: move it away",
    "SRC004": "a name is no plain UTF-8 path inside the repository, or is of no ordinary file: "
    "rename or remove it",
    "SRC005": "more files or bytes than are read: name a smaller directory (`repository.path`) or "
    "raise `repository.limits`",
    "SRC010": "neither kustomize nor kubectl is installed: install one, or commit the output of "
    "`kustomize build`",
    "SRC011": "a kustomization names something that is somewhere else, and nothing is fetched: "
    "commit a copy, and name that",
    "SRC012": "a kustomization names something that is not there: name what is there",
    "SRC013": "kustomize refuses a kustomization: mend what it says",
    "SRC014": "a kustomization is no single mapping, or wants a chart: name charts under `helm:` "
    "of the agent's `source.yaml`",
    "SRC015": "preparing a commit takes more time or memory than there is: make it smaller, or "
    "give the pod more memory",
}

_FILES = """
## Reading files

What is told before any rule can look. It can't be switched off. It is refused; for files that no rule looks at it is a warning.

| finding | what is so, and what to do |
|---|---|
"""


def rows() -> Iterator[Rule[Any]]:
    """Every rule, by number; one that weighs differently from case to case has several."""
    tables = (
        parse_rules.RULES,
        rule_table.RULES,
        cluster_rules.RULES,
        object_changes.RULES,
        promotion.RULES,
        repository_rules.RULES,
        suppressions.RULES,
    )
    every: list[Rule[Any]] = [rule for table in tables for rule in table]
    yield from sorted((*every, custom_rules.RULE, rule_table.CRASHED), key=lambda rule: rule.id)


def as_markdown() -> str:
    """The whole page."""
    files = "".join(f"| {name} | {said} |\n" for name, said in OF_FILES.items())
    by_id = (tuple(some) for _, some in groupby(rows(), key=lambda rule: rule.id))
    return _HEAD + "".join(map(_row, by_id)) + _FILES + files


def _row(parts: Sequence[Rule[Any]]) -> str:
    """One row for each rule; a line in it for each part that weighs differently."""
    page = f"[{parts[0].id}](../gitops_ds/checks/pages/{parts[0].id}.md)"
    columns = [
        cells[:1] if len(set(cells)) == 1 else cells
        for cells in zip(*map(_cells, parts), strict=True)
    ]
    return f"| {' | '.join((page, *map('<br>'.join, columns)))} |\n"


def _cells(rule: Rule[Any]) -> tuple[str, str, str, str]:
    kind = "blocking" if rule.refused else "advice"
    return rule.summary, kind, _severity(rule), "yes" if rule.on else "no"


def _severity(rule: Rule[Any]) -> str:
    """The printed severity: first without a class and a strict profile, then where it differs."""
    printed = rule.severity_for("", "")
    strict = () if printed is rule.severity else (f"{rule.severity} with a class or `strict`",)
    classes = (f"{name}: {severity}" for name, severity in sorted(rule.classes.items()))
    return "; ".join((printed, *strict, *classes))
