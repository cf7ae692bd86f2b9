"""The list of all rules, as docs/rules.md shows it, and the page of each, which `check --explain`
prints: description, examples, sources.

A page is Markdown with the sections Wrong, Right and Sources. An example is a whole manifest, or a
part of a DaemonSet. Tests run the examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import chain, groupby

import msgspec

from gitops_ds.checks.change import object_changes, promotion
from gitops_ds.checks.cluster import cluster_rules
from gitops_ds.checks.engine import repository_rules, rule_table, suppressions
from gitops_ds.checks.schema import custom_rules, error_messages, manifests
from gitops_ds.core.finding import RuleDefinition
from gitops_ds.source import rules
from gitops_ds.yaml import documents, libyaml, nodes

_HEAD = """# Rules

`gitops-ds check --explain DS202` prints the page of a rule: the reason, wrong and right examples,
and the sources. A finding of a *blocking* rule prevents the deployment of a commit: the commit
cannot be rendered as intended, or the API server, or the creation of every pod, refuses it.
*Advice* never blocks. The severity is the printed one; much advice is an error for agents with a
class, or with `profile: strict`.

`rules: {DS411: true, DS405: false}` in `gitops-ds.yaml` enables and disables advice. To suppress
single findings see [DS902](../gitops_ds/checks/pages/DS902.md).

A rule whose cases differ in severity has a line for each.

| rule | violation | kind | severity | on |
|---|---|---|---|---|
"""


_FILES = """
## Reading files

Findings of reading the repository, before any rule runs. They cannot be disabled. They are
blocking; for files that no rule checks they are warnings.

| finding | cause and solution |
|---|---|
"""


def rows() -> tuple[RuleDefinition, ...]:
    """Every rule in the order of its number; a rule with several severities has several rows."""
    return tuple(row for row in _declared() if row.id.startswith("DS"))


def of_files() -> Mapping[str, str]:
    """The findings of reading a repository's files, before any rule runs: cause and solution."""
    return {row.id: row.summary for row in _declared() if row.id.startswith("SRC")}


def _declared() -> Iterable[RuleDefinition]:
    """The definitions of all layers; some of a lower layer are those of a check as well."""
    modules = (manifests, error_messages, repository_rules, suppressions, custom_rules, rule_table)
    values = (vars(module).values() for module in (nodes, libyaml, documents, rules, *modules))
    tables = (rule_table.RULES, cluster_rules.RULES, object_changes.RULES, promotion.RULES)
    declared = (row for row in chain(*tables, *values) if isinstance(row, RuleDefinition))
    cases = {(row.id, row.summary): row for row in declared}
    return sorted(cases.values(), key=lambda row: row.id)


def as_markdown() -> str:
    """The content of docs/rules.md."""
    files = "".join(f"| {name} | {solution} |\n" for name, solution in of_files().items())
    by_id = (tuple(cases) for _, cases in groupby(rows(), key=lambda rule: rule.id))
    return _HEAD + "".join(map(_row, by_id)) + _FILES + files


def _row(parts: Sequence[RuleDefinition]) -> str:
    """One row per rule, with a line for each case of another severity."""
    page = f"[{parts[0].id}](../gitops_ds/checks/pages/{parts[0].id}.md)"
    columns = [
        cells[:1] if len(set(cells)) == 1 else cells
        for cells in zip(*map(_cells, parts), strict=True)
    ]
    return f"| {' | '.join((page, *map('<br>'.join, columns)))} |\n"


def _cells(rule: RuleDefinition) -> tuple[str, str, str, str]:
    kind = "blocking" if rule.refused else "advice"
    return rule.summary, kind, _severity(rule), "yes" if rule.on else "no"


def _severity(rule: RuleDefinition) -> str:
    """The printed severity: the default first, then the exceptions by class."""
    printed = rule.severity_for("", "")
    strict = () if printed is rule.severity else (f"{rule.severity} with a class or `strict`",)
    classes = (f"{name}: {severity}" for name, severity in sorted(rule.classes.items()))
    return "; ".join((printed, *strict, *classes))


_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"https?://\S+")


class RulePage(msgspec.Struct, frozen=True):
    """The text of a page, and its examples and sources."""

    text: str
    wrong: tuple[str, ...]
    right: tuple[str, ...]
    sources: tuple[str, ...]


@cache
def page_of(rule: str) -> RulePage | None:
    """The page of a rule; None without one."""
    file = resources.files("gitops_ds.checks").joinpath("pages", f"{rule}.md")
    if not file.is_file():
        return None
    text = file.read_text(encoding="utf-8")
    parts = _SECTION.split(text)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    examples = {name: tuple(_YAML.findall(body)) for name, body in sections.items()}
    links = tuple(_LINK.findall(sections.get("Sources", "")))
    return RulePage(text, examples.get("Wrong", ()), examples.get("Right", ()), links)
