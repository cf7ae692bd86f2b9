"""Whatever a fact holds, and whichever facts there will be: neither its line nor its JSON repeats a
secret.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import orjson
import pytest

from gitops_ds import errors, model
from gitops_ds.model.decision import Observation
from gitops_ds.model.events.base import Record
from gitops_ds.model.objects import Key
from gitops_ds.telemetry import log_lines
from tests.daemonset.world import World, daemonset

for _module in pkgutil.iter_modules(model.__path__):
    importlib.import_module(f"gitops_ds.model.{_module.name}")

PASSWORD, TOKEN, DATA = "hunter2-in-an-address", "ghp_" + "0aB1" * 9, "hunter2-in-the-clear"
# What an error of Git or of an API server, a subject or an annotation may quote: of such texts the
# form gives secrets away.
TEXT = f"https://bot:{PASSWORD}@git.example.com/fleet.git refused {TOKEN}"
# What objects hold: no form tells, so it may not be repeated at all.
BODY = {
    "kind": "Secret",
    "stringData": {"token": DATA},
    "spec": {"env": [{"name": "TOKEN", "value": DATA}]},
}


def kinds(of: type[Record] = Record) -> Iterator[type[Record]]:
    for kind in of.__subclasses__():
        # slots leave an empty twin behind
        if getattr(sys.modules[kind.__module__], kind.__name__) is kind:
            yield kind
        yield from kinds(kind)


def observed() -> Observation:
    body = daemonset()
    body["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": DATA}]
    return World(body, 2).observe()


def made(hint: Any, turn: int) -> Any:
    """A value of a type, full of secrets; another `turn` takes another member of an enum or a
    union.
    """
    if isinstance(hint, typing.NewType):
        return "a" * 40
    if hint is Any or hint is object:
        return DATA
    if hint is Observation:
        return observed()
    if hint is Key:
        return Key("", "Secret", "logging", "token")
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        members = [one for one in inside if one is not type(None)]
        return made(members[turn % len(members)], turn)
    if origin is tuple:
        return (
            (made(inside[0], turn),)
            if inside[1:] == (...,)
            else tuple(made(one, turn) for one in inside)
        )
    if origin is frozenset:
        return frozenset([made(inside[0], turn)])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return BODY if inside == (str, Any) else {made(inside[0], turn): made(inside[1], turn)}
    if issubclass(hint, Enum):
        return list(hint)[turn % len(hint)]
    if issubclass(hint, errors.ClusterError):
        return errors.Forbidden(TEXT, 403, "Forbidden")
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        build: Any = hint
        return build(
            **{
                field.name: made(hints[field.name], turn)
                for field in dataclasses.fields(hint)
                if field.init
            }
        )
    return {str: TEXT, int: 1, float: 1.0, bool: bool(turn % 2), bytes: DATA.encode()}[hint]


@pytest.mark.parametrize("turn", range(6))
@pytest.mark.parametrize("kind", sorted(set(kinds()), key=str), ids=lambda kind: kind.__name__)
def test_no_line_and_no_json_repeats_a_secret(kind: type[Record], turn: int) -> None:
    told = made(kind, turn)
    written = (log_lines.line(told) or "") + orjson.dumps(log_lines.as_json(told)).decode()
    assert [secret for secret in (PASSWORD, TOKEN, DATA) if secret in written] == []
    assert log_lines.level(told) in log_lines.LEVELS


def test_the_secrets_are_really_there() -> None:
    full = [
        kind
        for kind in set(kinds())
        if any(secret in repr(made(kind, 0)) for secret in (PASSWORD, DATA))
    ]
    assert len(full) > 20
