"""Requests to a service: annotations of the state's ConfigMap, and of a DaemonSet.

The state is the one in the options, that of the repository of the current directory, or the only
one.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from gitops_ds.core import errors, names, stated_reasons
from gitops_ds.core.cluster import Cluster, ClusterReader
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, Body, key_of, short
from gitops_ds.core.sources.source_status import Condition
from gitops_ds.deploy import requests, source_status_store, state_store
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.ownership import field_managers
from gitops_ds.source.git import address

ASK_SECONDS = 0.25
RELEASED = 10  # commits in the annotation
_TRIES = 5

# The changes of annotations: the new value of each, None to remove it.
AnnotationChange = Callable[[Body], Mapping[str, str | None]]


class StateObject(msgspec.Struct, frozen=True):
    """A state: its namespace, the owner's id, and its content."""

    namespace: str
    id: str
    state: DeployerState

    @property
    def name(self) -> str:
        """The name of its ConfigMap."""
        return state_store.config_map_name(self.id)


async def find(
    cluster: ClusterReader, namespace: str, named_id: str, repository: str | None
) -> StateObject:
    """The state with that ID, or of a repository (a directory or URL). Raises NoMatch without one,
    UsageError for several.
    """
    there = await state_store.load_all(cluster, namespace)
    if named_id:
        if named_id not in there:
            raise _nothing(f"no state {named_id} is in namespace {namespace}", there)
        return StateObject(namespace, named_id, there[named_id])
    if not there:
        raise _nothing(f"no service has run here: no state is in namespace {namespace}", there)
    named = _around(repository)
    mine = {
        id: state
        for id, state in there.items()
        if any(address.same_place(state.repository, place) for place in named)
    }
    if repository is not None and not mine:
        raise _nothing(f"no service follows {repository} here", there)
    mine = mine or dict(there)
    if len(mine) > 1:
        raise errors.UsageError(
            f"several repositories are followed here: choose one with -C or --id: {_list(mine)}"
        )
    return next(StateObject(namespace, id, state) for id, state in mine.items())


def _around(named: str | None) -> tuple[str, ...]:
    try:
        repository = open_repository.named(named)
    except errors.UsageError:
        if named is not None:
            raise
        return ()
    return tuple({repository.identity, repository.display})


def _nothing(words: str, there: Mapping[str, DeployerState]) -> errors.NoMatch:
    also = (
        f"; there are {_list(there)}"
        if there
        else ": is `gitops-ds run` running, and is --state-namespace correct?"
    )
    return errors.NoMatch(words + also)


def _list(there: Mapping[str, DeployerState]) -> str:
    return ", ".join(f"{id} ({state.repository})" for id, state in there.items())


async def annotate(cluster: Cluster, target: StateObject, change: AnnotationChange) -> Body:
    """The ConfigMap of a state after the change, also with concurrent writes."""
    for _ in range(_TRIES):
        before = await cluster.get(CONFIG_MAP, target.namespace, target.name)
        metadata = {
            "resourceVersion": before["metadata"]["resourceVersion"],
            "annotations": dict(change(before)),
        }
        try:
            return await cluster.patch(
                CONFIG_MAP, target.namespace, target.name, {"metadata": metadata}
            )
        except errors.Conflict:
            continue
    raise errors.WriteContention(f"the state {target.id} is written concurrently: try again")


async def request(cluster: Cluster, target: StateObject) -> tuple[Body, str]:
    """Requests a reconciliation; returns the ConfigMap, and the value that the response repeats."""
    value = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return await annotate(cluster, target, lambda _: {names.REQUESTED_AT: value}), value


async def answered(cluster: ClusterReader, target: StateObject, value: str, seconds: float) -> Body:
    """The ConfigMap after the response. Raises TimedOut."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                body = await cluster.get(CONFIG_MAP, target.namespace, target.name)
                annotations = _annotations(body)
                if annotations.get(names.HANDLED_AT) == value:
                    return body
                if annotations.get(names.REQUESTED_AT) != value:
                    raise errors.TimedOut(
                        "another reconciliation was requested meanwhile, "
                        "which replaces this request"
                    )
                await asyncio.sleep(ASK_SECONDS)
    except TimeoutError:
        raise errors.TimedOut(
            f"not answered after {seconds:g} seconds: is `gitops-ds run` running for {target.id}? "
            "The request remains until then"
        ) from None


def refuse_commit(state: DeployerState, hash: str) -> None:
    """Raises UsageError if the hash of a plan is the abbreviated ID of a known commit."""
    for commit in (state.last_attempted, state.last_good):
        if (commit or "").startswith(hash):
            raise errors.UsageError(
                f"{hash} is commit {short(commit)}: a plan is approved by its hash, which "
                "`gitops-ds plan` and the log print"
            )


class Suspension(msgspec.Struct, frozen=True):
    """The suspended or resumed object; `changed` is False if it was already in that state."""

    name: str
    changed: bool
    body: Body

    def words(self, *, suspended: bool) -> str:
        """The state now."""
        if suspended:
            return f"{self.name} is {'' if self.changed else 'already '}suspended"
        return f"{self.name} is resumed" if self.changed else f"{self.name} is not suspended"


async def suspend(
    cluster: Cluster, target: StateObject, *, suspended: bool, reason: str = ""
) -> Suspension:
    """Suspends a repository, or resumes it; the reason of an earlier suspension is replaced."""
    earlier = False

    def change(before: Body) -> Mapping[str, str | None]:
        nonlocal earlier
        earlier = requests.parse(before).suspended
        return _suspended(suspended=suspended, reason=reason)

    body = await annotate(cluster, target, change)
    return Suspension(target.id, earlier is not suspended, body)


def _suspended(*, suspended: bool, reason: str) -> Mapping[str, str | None]:
    return {names.SUSPEND: "true" if suspended else None, names.SUSPEND_REASON: reason or None}


async def suspend_agent(
    cluster: Cluster, name: str, namespace: str, *, suspended: bool, reason: str = ""
) -> Suspension:
    """Suspends one DaemonSet, or resumes it. Raises Refused if a commit suspended it."""
    plain = name.rpartition("/")[2]
    listed = (await cluster.list(DAEMONSET)).items
    matches = [body for body in listed if _is_meant(body, plain, namespace)]
    if not matches:
        inside = {key.name for key in map(key_of, listed) if namespace in ("", key.namespace)}
        near = difflib.get_close_matches(plain, inside, 1)
        hint = f"did you mean {near[0]}?" if near else "`gitops-ds get` lists them"
        raise errors.NoMatch(f'daemonsets.apps "{plain}" not found: {hint}')
    if len(matches) > 1:
        spaces = ", ".join(key_of(body).namespace for body in matches)
        raise errors.UsageError(f"{plain} is in the namespaces {spaces}: choose one with -n")
    body, key = matches[0], key_of(matches[0])
    if not suspended and field_managers.is_from_git(body, names.SUSPEND):
        raise errors.Refused(
            f"{key} is suspended by a commit: take {names.SUSPEND} out of its manifest, and it is "
            "resumed"
        )
    annotations = _suspended(suspended=suspended, reason=reason)
    value = {"metadata": {"annotations": dict(annotations)}}
    earlier = (body["metadata"].get("annotations") or {}).get(names.SUSPEND) == "true"
    body = await cluster.patch(DAEMONSET, key.namespace, key.name, value)
    return Suspension(str(key), earlier is not suspended, body)


def _is_meant(body: Body, name: str, namespace: str) -> bool:
    key = key_of(body)
    return key.name == name and namespace in ("", key.namespace)


async def hold(cluster: Cluster, target: StateObject, commit: str, reason: str = "") -> Body:
    """Puts a commit on hold; the reason of an earlier hold of it is replaced."""

    def change(before: Body) -> Mapping[str, str | None]:
        pending = requests.parse(before)
        reasons = {held: why for held, why in pending.hold_reasons.items() if held != commit}
        return {
            names.HOLD: ",".join(sorted({*pending.held, commit})),
            names.HOLD_REASONS: stated_reasons.encoded(
                {**reasons, **({commit: reason} if reason else {})}
            ),
        }

    return await annotate(cluster, target, change)


async def release(cluster: Cluster, target: StateObject, commit: str) -> Body:
    """Releases a commit. Raises Refused if it is not on hold."""

    def same(held: str) -> bool:
        return held.startswith(commit) or commit.startswith(held)

    def change(before: Body) -> Mapping[str, str | None]:
        pending = requests.parse(before)
        held = pending.held
        if not any(map(same, held)):
            raise errors.Refused(
                f"commit {commit} is not on hold: {', '.join(held) or 'no commit is'}"
            )
        reasons = {other: why for other, why in pending.hold_reasons.items() if not same(other)}
        return {
            names.HOLD: ",".join(other for other in held if not same(other)) or None,
            names.HOLD_REASONS: stated_reasons.encoded(reasons),
        }

    return await annotate(cluster, target, change)


async def is_waiting(cluster: ClusterReader, target: StateObject, commit: str, now: float) -> bool:
    """Whether the commit waits for other clusters: it is the newest one of a Waiting repository."""
    status = (await source_status_store.load_all(cluster, target.namespace, now)).get(target.id)
    if status is None or status.condition is not Condition.WAITING:
        return False
    return (status.newest or "").startswith(commit)


async def release_waiting(cluster: Cluster, target: StateObject, commit: str) -> Body:
    """Ends the wait of a commit for other clusters; the last RELEASED ones are kept."""

    def change(before: Body) -> Mapping[str, str | None]:
        value = _annotations(before).get(names.RELEASE, "")
        others = [other for other in re.split(r"[,\s]+", value) if other not in ("", commit)]
        return {names.RELEASE: ",".join([*others, commit][-RELEASED:])}

    return await annotate(cluster, target, change)


def as_json(target: StateObject, body: Body) -> dict[str, Any]:
    """The requests to a service and its answers (docs/reference/json.md)."""
    annotations, pending = _annotations(body), requests.parse(body)
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Steering",
        "id": target.id,
        "repository": target.state.repository,
        "requestedAt": annotations.get(names.REQUESTED_AT, ""),
        "handledAt": annotations.get(names.HANDLED_AT, ""),
        "outcome": annotations.get(names.OUTCOME, ""),
        "suspended": pending.suspended,
        "suspendReason": pending.suspend_reason,
        "approve": pending.approved,
        "hold": list(pending.held),
        "holdReasons": dict(pending.hold_reasons),
        "release": list(pending.released),
    }


def _annotations(body: Body) -> Mapping[str, str]:
    return (body.get("metadata") or {}).get("annotations") or {}
