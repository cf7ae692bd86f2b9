"""The table of docs/install.md: each default permission of the service, and what used it first in
the day of test_rights.py, by the audit log. With UPDATE_GOLDENS=1 that test writes the table.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from ruamel.yaml import YAML

from tests import installation as deploy
from tests.installation.rights import Right

PAGE = deploy.ROOT / "docs/install.md"
ALL = "all"
HEAD = "| resource | namespaces | verbs | first used by |\n|---|---|---|---|\n"
_TABLE = re.compile(re.escape(HEAD) + r"(?:\|[^\n]*\n)*")
_ROW = re.compile(r"\| `([\w/]+)(?:\.([\w.]+))?` \| (?:`([\w-]+)`|all) \| ([\w, ]+) \| [^|\n]+ \|")
_ROLES = ("powers/observe/rights.yaml", "powers/pace/rights.yaml", "powers/pace/objects.yaml")


def of_deploy() -> frozenset[Right]:
    """The default permissions, those of the powers pace, by the files of deploy/."""
    return frozenset(right for file in _ROLES for right in _rights(file))


def _rights(file: str) -> Iterator[Right]:
    for body in YAML(typ="safe").load_all((deploy.DEPLOY / file).read_text()):
        for rule in body.get("rules") or ():
            space = body["metadata"].get("namespace", "")
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        yield Right(verb, group, resource, space)


def on_page() -> frozenset[Right]:
    """The permissions of the table."""
    (table,) = _TABLE.findall(PAGE.read_text())
    rows = [_ROW.fullmatch(line) for line in table.removeprefix(HEAD).splitlines()]
    assert all(rows), table
    return frozenset(
        Right(verb, row[2] or "", row[1], row[3] or "")
        for row in rows
        if row
        for verb in row[4].split(", ")
    )


def check_page(used: Mapping[Right, str]) -> None:
    """Fails if the table has others, for the scene of a use may change with the load of a machine;
    with UPDATE_GOLDENS=1 writes it instead.
    """
    if os.environ.get("UPDATE_GOLDENS") == "1":
        text = PAGE.read_text()
        PAGE.write_text(_TABLE.sub(lambda _: HEAD + "".join(_lines(used)), text))
    assert on_page() == used.keys(), f"{PAGE}: run this test with UPDATE_GOLDENS=1"


def _lines(used: Mapping[Right, str]) -> Iterator[str]:
    verbs = defaultdict(list)
    for right, part in used.items():
        name = f"{right.resource}.{right.group}" if right.group else right.resource
        verbs[name, right.namespace, part].append(right.verb)
    for (name, space, part), some in sorted(verbs.items()):
        where = f"`{space}`" if space else ALL
        yield f"| `{name}` | {where} | {', '.join(sorted(some))} | {part} |\n"
