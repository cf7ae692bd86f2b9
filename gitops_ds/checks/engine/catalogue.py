"""The list of all rules, as docs/rules.md shows it, and the page of each, which `check --explain`
prints: description, examples, sources.

A page is Markdown with the sections Wrong, Right and Sources. An example is a whole manifest, or a
part of a DaemonSet. Tests run the examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import groupby
from typing import Any, Final

import msgspec

from gitops_ds.checks.change import object_changes, promotion
from gitops_ds.checks.cluster import cluster_rules
from gitops_ds.checks.engine import repository_rules, rule_table, suppressions
from gitops_ds.checks.engine.rule import Rule
from gitops_ds.checks.schema import custom_rules, manifests

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


# Findings of reading a repository's files (gitops_ds/source/git), before any rule runs.
OF_FILES: Final[Mapping[str, str]] = {
    "SRC001": "a symbolic link is not followed: replace it by the file",
    "SRC002": "a submodule is not read: add its files to the repository, or manage it as a "
    "repository of its own",
    "SRC003": "a file exceeds the size limit: remove it from the repository",
    "SRC004": "a name is not a valid UTF-8 path inside the repository, or not a regular file: "
    "rename or remove it",
    "SRC005": "the repository exceeds the limit of files or bytes: set a smaller directory "
    "(`repository.path`) or raise `repository.limits`",
    "SRC010": "neither kustomize nor kubectl is installed: install one, or commit the output of "
    "`kustomize build`",
    "SRC011": "a kustomization refers to a remote resource, and nothing is downloaded: commit a "
    "copy and refer to it",
    "SRC012": "a kustomization refers to a file that does not exist: correct the path",
    "SRC013": "kustomize rejects a kustomization: fix the reported error",
    "SRC014": "a kustomization is not a single object, or has a chart: list charts under `helm:` "
    "of the agent's `source.yaml`",
    "SRC015": "preparing a commit exceeds the limit of time or memory: make the commit smaller, or "
    "give the pod more memory",
}

_FILES = """
## Reading files

Findings of reading the repository, before any rule runs. They cannot be disabled. They are
blocking; for files that no rule checks they are warnings.

| finding | cause and solution |
|---|---|
"""


def rows() -> Iterator[Rule[Any]]:
    """Every rule in the order of its number; a rule with several severities has several rows."""
    tables = (
        manifests.RULES,
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
    """The content of docs/rules.md."""
    files = "".join(f"| {name} | {solution} |\n" for name, solution in OF_FILES.items())
    by_id = (tuple(some) for _, some in groupby(rows(), key=lambda rule: rule.id))
    return _HEAD + "".join(map(_row, by_id)) + _FILES + files


def _row(parts: Sequence[Rule[Any]]) -> str:
    """One row per rule, with a line for each case of another severity."""
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
