"""Fields that Git sets only while they are missing, and ignores afterwards.

A field of another manager is omitted from an apply, which releases our ownership; the value
remains, since the other manager owns it. A field that only we own must remain in the apply, or the
API server would remove it: it is applied with its live value. So no value of an ignored field is
drift or lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.live import Live
from gitops_ds.core.objects import MISSING, Body, Key, Path, annotations_of, value_at
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.core.values import replace
from gitops_ds.ownership import field_managers
from gitops_ds.ownership.diff import MEMBER_KEYS


class IgnoreRule(msgspec.Struct, frozen=True):
    """The fields of objects that are ignored.

    `paths` are JSON pointers (https://www.rfc-editor.org/rfc/rfc6901); the member of a list may be
    given by its name instead of its index. `managers` restricts the rule to fields that one of them
    owns, in the whole object if `paths` is empty. `kind`, `namespace` and `name` are globs.
    """

    paths: tuple[str, ...] = ()
    managers: tuple[str, ...] = ()
    kind: str = "*"
    namespace: str = "*"
    name: str = "*"

    def matches(self, key: Key) -> bool:
        """Whether the rule applies to that object."""
        pairs = ((key.kind, self.kind), (key.namespace, self.namespace), (key.name, self.name))
        return all(fnmatchcase(word, glob) for word, glob in pairs)


def over(bundle: Bundle, live: Live, rules: Sequence[IgnoreRule]) -> Bundle:
    """The bundle to apply; the digests remain those of Git."""
    changed = {}
    for key, manifest in bundle.manifests.items():
        there = live.objects.get(key)
        mine = rules_of(manifest, rules)
        if (
            there is not None
            and mine
            and (body := applied(manifest.body, there, mine)) is not manifest.body
        ):
            changed[key] = replace(manifest, body=body)
    return replace(bundle, manifests={**bundle.manifests, **changed}) if changed else bundle


def rules_of(manifest: Manifest, rules: Sequence[IgnoreRule]) -> list[IgnoreRule]:
    """The rules that apply to the object, and that of its own annotation."""
    own = _own(manifest)
    return [rule for rule in rules if rule.matches(manifest.key)] + (
        [IgnoreRule(own)] if own else []
    )


def _own(manifest: Manifest) -> tuple[str, ...]:
    """The pointers in the manifest's own annotation, separated by commas or spaces."""
    text = annotations_of(manifest.body).get(names.IGNORE_FIELDS) or ""
    return tuple(str(text).replace(",", " ").split())


def applied(body: Body, live: Body, rules: Sequence[IgnoreRule]) -> Body:
    """A manifest's body to apply to the live object."""
    named = {
        (path, rule.managers)
        for rule in rules
        for path in _named(body, rule)
        if not _is_identity(path)
    }
    result, adopted = body, False
    for path, managers in named:  # in any order: each is the path of one value
        there, way = _live(body, live, path)
        others = {
            owner.manager
            for owner in field_managers.owners(live, way)
            if not field_managers.is_ours(owner)
        }
        if (
            value_at(result, path) is MISSING
            or there is MISSING
            or (managers and not others & {*managers})
        ):
            continue
        # no item of a list can be left out: the others would move
        if others and not isinstance(path[-1], int):
            result = _without(result, path)
        elif there != value_at(result, path):
            result, adopted = _with(result, path, there), True
    if adopted:
        # An adopted list member may have another index by now: then the API server refuses, and the
        # next reconciliation tries again.
        version = (live.get("metadata") or {}).get("resourceVersion")
        result = {**result, "metadata": {**result["metadata"], "resourceVersion": version}}
    return result


def _named(body: Body, rule: IgnoreRule) -> Iterator[Path]:
    if rule.paths:
        for pointer in rule.paths:
            for path in resolve(body, pointer):
                yield from _ways(value_at(body, path), path)
    elif rule.managers:
        yield from _ways(body, ())


def _is_identity(path: Path) -> bool:
    """Whether the field is part of the identity of the object, or of a list member."""
    member = len(path) > 1 and isinstance(path[-2], int) and path[-1] in MEMBER_KEYS
    return (
        member
        or path[0] in ("apiVersion", "kind")
        or path in (("metadata", "name"), ("metadata", "namespace"))
    )


def _ways(value: Any, path: Path) -> Iterator[Path]:
    """The paths of all values; a list without named members is one value."""
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _ways(below, (*path, key))
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        for index, below in enumerate(value):
            yield from _ways(below, (*path, index))
    elif path:
        yield path


def resolve(body: Any, pointer: str) -> tuple[Path, ...]:
    """The paths in a manifest for a pointer; none if it does not exist."""
    path: list[str | int] = []
    for word in pointer.removeprefix("/").split("/"):
        step = word.replace("~1", "/").replace("~0", "~")
        if isinstance(body, list):
            index = int(step) if step.isdigit() else field_managers.index_of(body, step)
            if index is None or index >= len(body):
                return ()
            path.append(index)
            body = body[index]
        elif isinstance(body, Mapping) and step in body:
            path.append(step)
            body = body[step]
        else:
            return ()
    return (tuple(path),) if path else ()


def _live(body: Any, live: Any, path: Path) -> tuple[Any, Path]:
    """The value in the live object, and its path there: indices of list members differ."""
    way: list[str | int] = []
    for step in path:
        if isinstance(body, list) and isinstance(step, int) and isinstance(live, list):
            item = body[step]
            name = (
                next((item[key] for key in MEMBER_KEYS if key in item), None)
                if isinstance(item, Mapping)
                else None
            )
            index = (
                field_managers.index_of(live, str(name))
                if name is not None
                else step
                if step < len(live)
                else None
            )
            if index is None:
                return MISSING, (*way, *path[len(way) :])
            body, live = item, live[index]
            way.append(index)
        else:
            body = body[step]
            live = live[step] if isinstance(live, Mapping) and step in live else MISSING
            way.append(step)
    return live, tuple(way)


def _without(body: Any, path: Path) -> Any:
    """The body without the value at the path, and without mappings that become empty."""
    step, rest = path[0], path[1:]
    below = _without(body[step], rest) if rest else None
    if isinstance(body, list):
        return [below if index == step else item for index, item in enumerate(body)]
    if not below:
        return {key: value for key, value in body.items() if key != step}
    return {**body, step: below}


def _with(body: Any, path: Path, value: Any) -> Any:
    step, rest = path[0], path[1:]
    below = _with(body[step], rest, value) if rest else value
    if isinstance(body, list):
        return [below if index == step else item for index, item in enumerate(body)]
    return {**body, step: below}
