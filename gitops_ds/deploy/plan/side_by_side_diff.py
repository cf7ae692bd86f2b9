"""The live and the desired object side by side: two YAML texts in pairs of lines, no secrets."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gitops_ds.core.change import FieldChange
from gitops_ds.core.objects import Body, key_of, show_path
from gitops_ds.core.redaction import objects, report
from gitops_ds.kube.apimachinery import defaults
from gitops_ds.ownership import diff
from gitops_ds.yaml import writer

CONTEXT = 3  # equal lines around a difference


class DiffRow(msgspec.Struct, frozen=True):
    """A pair of lines; `kind` is same, changed, gone (live only), new (desired only), or skipped
    with the number of equal lines.
    """

    kind: str
    left: str = ""
    right: str = ""
    left_number: int = 0
    right_number: int = 0
    skipped: int = 0


class TextDiff(msgspec.Struct, frozen=True):
    """The rows of the diff, and the paths of secret values that differ, whose values are hidden."""

    rows: tuple[DiffRow, ...]
    secret: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether live and desired are in sync."""
        return not self.secret and all(row.kind in ("same", "skipped") for row in self.rows)


def compare(live: Body, desired: Body) -> TextDiff:
    """Live on the left, wanted on the right. Fields that Git does not set are omitted."""
    stored = _within(defaults.defaulted(desired), desired)
    mine = {key: value for key, value in stored.items() if key != "status"}
    theirs = _within(live, mine)
    hidden = report.found_in((live, desired))
    changes = diff.compare(theirs, mine)
    secret = tuple(show_path(c.path) for c in changes if c.old and c.new and _is_hidden(mine, c))
    return TextDiff(tuple(_folded(list(_rows(_text(theirs, hidden), _text(mine, hidden))))), secret)


def _is_hidden(body: Body, change: FieldChange) -> bool:
    shown = objects.field(key_of(body), change)
    return bool(shown.old == shown.new)


def _text(body: Body, hidden: report.ReportSecrets) -> list[str]:
    return hidden.within(writer.dump(objects.body(body))).splitlines()


def _within(live: Any, desired: Any) -> Any:
    """The fields of the live value that the desired one sets; the whole live value if the types
    differ.
    """
    if isinstance(live, Mapping) and isinstance(desired, Mapping):
        return {key: _within(live[key], desired[key]) for key in desired if key in live}
    if isinstance(live, list) and isinstance(desired, list):
        by_name = {
            item["name"]: item for item in desired if isinstance(item, Mapping) and "name" in item
        }
        if len(by_name) == len(desired) and all(isinstance(item, Mapping) for item in live):
            return [_within(item, by_name.get(item.get("name"), item)) for item in live]
        if len(live) == len(desired):
            return [_within(mine, theirs) for mine, theirs in zip(live, desired, strict=True)]
    return live


def _rows(left: list[str], right: list[str]) -> Iterator[DiffRow]:
    for kind, a, b, c, d in difflib.SequenceMatcher(
        None, left, right, autojunk=False
    ).get_opcodes():
        for step in range(max(b - a, d - c)):
            has_left, has_right = a + step < b, c + step < d
            yield DiffRow(
                "same"
                if kind == "equal"
                else "changed"
                if has_left and has_right
                else "gone"
                if has_left
                else "new",
                left[a + step] if has_left else "",
                right[c + step] if has_right else "",
                a + step + 1 if has_left else 0,
                c + step + 1 if has_right else 0,
            )


def _folded(rows: list[DiffRow]) -> Iterator[DiffRow]:
    """Long runs of equal lines as one row."""
    near = {
        place + by
        for place, row in enumerate(rows)
        if row.kind != "same"
        for by in range(-CONTEXT, CONTEXT + 1)
    }
    skipped = 0
    for place, row in enumerate(rows):
        if place in near:
            if skipped:
                yield DiffRow("skipped", skipped=skipped)
            skipped = 0
            yield row
        else:
            skipped += 1
    if skipped:
        yield DiffRow("skipped", skipped=skipped)
