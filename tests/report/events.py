"""Values of every class of events: `kinds` finds the classes, `made` builds them full of secrets,
`samples` adds the values that a level, a reason or a topic depends on.
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

import msgspec
from msgspec.structs import fields

from gitops_ds import core as model
from gitops_ds.core import errors
from gitops_ds.core.change import Change, Drifted, Operation
from gitops_ds.core.decision import Action, CreatePod, Decision, DeleteCause, DeletePod, Observation
from gitops_ds.core.events import agents, base, deployer, notifications, requests
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.commits import CommitRejected, NewCommit
from gitops_ds.core.events.drift import DriftContested, DriftCorrected, DriftDetected, DriftPaused
from gitops_ds.core.events.startup_taints import StartupTaintsRemoved
from gitops_ds.core.finding import Place
from gitops_ds.core.health import Health, HealthState
from gitops_ds.core.objects import CommitId, Digest, Key
from gitops_ds.core.skip_reasons import DriftPolicy, Skipped, SkipReason
from gitops_ds.core.sources.bundle import Manifest, Origin, Pointer
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.core.startup_taints import OWN
from gitops_ds.source import rules
from tests.daemonset.world import World, daemonset

for _module in pkgutil.walk_packages(model.__path__, f"{model.__name__}."):
    importlib.import_module(_module.name)

PASSWORD, TOKEN, DATA = "hunter2-in-an-address", "ghp_" + "0aB1" * 9, "hunter2-in-the-clear"
# Texts that an error of Git or of an API server, a subject or an annotation may quote, with secrets
# that their form shows.
TEXT = f"https://bot:{PASSWORD}@git.example.com/fleet.git refused {TOKEN}"
# Values of objects: no pattern identifies them, so they must not be quoted at all.
BODY = {
    "kind": "Secret",
    "stringData": {"token": DATA},
    "spec": {"env": [{"name": "TOKEN", "value": DATA}]},
}


def kinds(of: type[Event] = Event) -> Iterator[type[Event]]:
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
    if issubclass(hint, msgspec.Struct):
        hints = typing.get_type_hints(hint)
        return hint(**{field.name: made(hints[field.name], turn) for field in fields(hint)})
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


AGENT = Key("apps", "DaemonSet", "logging", "agent")
SECRET = Key("", "Secret", "logging", "token")
POD = Key("", "Pod", "logging", "agent-x7f2k")
COMMIT = CommitId("a" * 40)
# of each class of events as many values of `made`
TURNS = 6


def concrete() -> list[type[Event]]:
    """The classes that events are of: those that no other class extends."""
    existing = set(kinds())
    return sorted(
        (kind for kind in existing if not any(kind in one.__mro__[1:] for one in existing)), key=str
    )


def samples(kind: type[Event]) -> list[Event]:
    """Events of the class: of `made`, and with the values that something public depends on."""
    return [made(kind, turn) for turn in range(TURNS)] + [
        event for event in _special() if type(event) is kind
    ]


def _special() -> Iterator[Event]:
    yield from _of_deployers()
    yield from _of_agents()
    yield from _of_controllers()
    yield StartupTaintsRemoved(1.0, "node", "uid", (OWN,), 5.0)
    for result in requests.WebhookResult:
        yield requests.WebhookReceived(1.0, result, "github")
    for lost in (0, 3):
        yield notifications.NotificationFailed(1.0, "ops", "HTTP 500", lost)
    for before in Condition:
        for after in Condition:
            for suspended in (False, True):
                status = SourceStatus("id", "repo", "main", after, "message", suspended=suspended)
                yield deployer.SourceChanged(1.0, status, before)


def _of_deployers() -> Iterator[Event]:
    for rewritten in (False, True):
        yield NewCommit(1.0, COMMIT, "subject", "author", rewritten)
    path = ("stringData", "token")
    quoting = rules.WRONG_TYPE.refusal(
        f'write "{DATA}"', Place("a.yaml", 3, 5), object=SECRET, path=path
    )
    for commit in (None, COMMIT):
        yield CommitRejected(1.0, commit, (quoting,))
    for operation in Operation:
        manifest = Manifest(AGENT, {}, Digest("d"), Origin(Pointer("a.yaml", 0, ())))
        yield deployer.Applied(1.0, Change(operation, AGENT, manifest))
    for reason in SkipReason:
        skipped = Skipped(reason, "message", SECRET)
        yield deployer.NotApplied(1.0, skipped, Change(Operation.UPDATE, SECRET, None))
        yield deployer.ChangeSkipped(1.0, skipped)
        for writes in (0, 2):
            yield deployer.Reconciled(1.0, COMMIT, writes, (skipped,))
    for writes in (0, 2):
        yield deployer.Reconciled(1.0, COMMIT, writes, ())
        yield deployer.Reconciled(1.0, None, writes, ())
    for retry_in in (None, 5.0):
        yield deployer.ReconcileFailed(1.0, "message", retry_in)
    for well in (False, True):
        yield deployer.ReconcileTimed(1.0, 2.0, well)
        yield deployer.GitTimed(1.0, 2.0, well)
    for key in (AGENT, SECRET):
        for choice in DriftPolicy:
            drifted = Drifted((), (), "kubectl edit", choice, "uid")
            yield DriftDetected(1.0, key, drifted, "changed")
            yield DriftCorrected(1.0, key, drifted, "changed")
            yield DriftContested(1.0, key, drifted, "changed")
            yield DriftPaused(1.0, key, drifted, "changed", 9.0)


def _of_agents() -> Iterator[Event]:
    for before in (None, *HealthState):
        for after in HealthState:
            yield agents.HealthChanged(1.0, AGENT, "uid", before, Health(after, "message"), COMMIT)


def _of_controllers() -> Iterator[Event]:
    actions = [made(kind, 0) for kind in typing.get_args(Action)]
    actions += [DeletePod(POD, "uid", "node-1", cause, "why") for cause in DeleteCause]
    seen = observed()
    for action in actions:
        yield base.Performed(1.0, AGENT, action, POD)
        yield base.ActionFailed(1.0, AGENT, action, errors.Forbidden("no", 403, "Forbidden"))
        for performed in (False, True):
            yield base.Decided(1.0, AGENT, Decision(((action,),)), performed, seen)
    create = CreatePod("node-1", {}, "seed", "why")
    for decision in (
        Decision(),
        Decision(((create,),)),
        Decision(complaint="selects all"),
        Decision(unplaced={"node-1": "no room"}),
    ):
        yield base.Decided(1.0, AGENT, decision, True, seen)
    for differences in (0, 2):
        yield base.Compared(1.0, AGENT, 0.5, differences, {"node-1": 1}, {})
