"""The owner's id of a repository: kept in its state, so that it does not change with the address.

The id of a new owner is a hash of address, path and cluster, or the repository's own name. Its
state has the present address, the path, and the commit that was applied last, and these are the
evidence for a repository at another address:

- The addresses are of one place: `git@host:team/agents` and `https://host/team/agents.git`.
- The last applied commit is in the history. Its id is a hash of its whole history, so this is
  stronger than a common root commit, and states of earlier versions have it. Our copies are never
  shallow: a commit is fetched with its history, and git refuses that from a shallow clone.

A fork has that commit too. So the second is enough only if the repository is not elsewhere: its
address was a directory without a repository now, or whose remote is this address; or this very
service followed it, and its settings have another address instead; or both have the same name. Else
a person decides, with `apply --adopt`.

The name is written by the authors of a repository, so it alone proves nothing: the id belongs to
the address that has it in its state, and a second repository with the name is refused.

Messages describe the other owners of live objects. Those without objects are forgotten.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from pathlib import Path

import msgspec

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import Cluster, ClusterReader
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.objects import CONFIG_MAP, Body, CommitId, Key, short
from gitops_ds.core.values import replace
from gitops_ds.deploy import source_status_store, state_store
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.deploy.target import DeployTarget, PlanTarget
from gitops_ds.ownership import object_owner
from gitops_ds.source.git import address

# Whether a commit is in the history of the repository.
Contains = Callable[[CommitId], Awaitable[bool]]


class OwnerKey(msgspec.Struct, frozen=True):
    """What owns objects: a repository, its own name for them (`hint`), the directory, and the name
    of the cluster.
    """

    hint: str
    repository: str
    path: str
    cluster: str

    def new_id(self, attempt: int = 0) -> str:
        """The id of a new owner. Later attempts are for an address whose former repository has
        moved with its id. Raises OwnerRefused for a name that cannot be an id.
        """
        path = f"{self.path}\0{attempt}" if attempt else self.path
        return state_store.identity(self.hint, self.repository, path, self.cluster)

    @property
    def own_id(self) -> str:
        """The id of a new owner; empty for a name that cannot be an id."""
        try:
            return self.new_id()
        except errors.OwnerRefused:
            return ""

    def is_of(self, id: str, state: DeployerState) -> bool:
        """Whether a state is of this directory and cluster. States of earlier versions have no
        path, but the id is a hash of it.
        """
        if state.path is not None:
            return (state.path, state.cluster) == (self.path, self.cluster)
        return id in (self.own_id, replace(self, hint="", repository=state.repository).new_id())

    def is_at(self, state: DeployerState) -> bool:
        """Whether a state is of this address."""
        return address.same_place(state.repository, self.repository)


class Evidence(msgspec.Struct, frozen=True):
    """What is known beside the states.

    `contains`: whether a commit is in the history. `elsewhere`: whether another repository is at an
    address, or another followed one at an address and path. `now`: seconds since 1970.
    `is_service`: a service asks, which knows the repositories that it followed. `adopt`: a person
    has decided.
    """

    contains: Contains
    elsewhere: Callable[[str, str], bool]
    now: float
    is_service: bool = False
    adopt: bool = False


class KnownOwner(msgspec.Struct, frozen=True):
    """The state of an owner; `moved`: the evidence is that its repository has another address now,
    which is ours. `abandoned`: it has no objects, and no repository uses it.
    """

    state: DeployerState
    moved: bool = False
    abandoned: bool = False


class FoundOwner(msgspec.Struct, frozen=True):
    """The owner's id of a repository; `unused` are other ids of it, without objects."""

    id: str
    unused: frozenset[str] = frozenset()


def choose(key: OwnerKey, known: Mapping[str, KnownOwner]) -> FoundOwner:
    """The owner's id among the known owners: those of the directory and cluster, and the one with
    our name. Pure.

    An owner at the address precedes one that has moved here, one with objects precedes both. Raises
    OwnerRefused if the name is that of another repository.
    """

    def most(ids: Iterable[str]) -> str:
        return min(ids, key=lambda one: (-len(known[one].state.inventory), one), default="")

    here = {id for id, one in known.items() if key.is_at(one.state) and key.is_of(id, one.state)}
    with_objects = {id for id in here if known[id].state.inventory}
    moved = {id for id, one in known.items() if one.moved}
    own = key.own_id
    id = own if own in with_objects else most(with_objects) or most(moved)
    id = id or (own if own in here else most(here))
    return FoundOwner(id or _new_id(key, known), frozenset(here - with_objects - {id}))


def _new_id(key: OwnerKey, known: Mapping[str, KnownOwner]) -> str:
    if key.hint:
        id = key.new_id()
        if id in known and not known[id].abandoned:
            raise _taken(key, known[id].state)
        return id
    # the ids of the attempts differ
    return next(id for attempt in range(len(known) + 1) if (id := key.new_id(attempt)) not in known)


def _taken(key: OwnerKey, state: DeployerState) -> errors.OwnerRefused:
    path = f" (path {state.path})" if state.path else ""
    last = state.last_attempted
    return errors.OwnerRefused(
        f"the name {key.hint} in gitops-ds.yaml of {key.repository} is that of {state.repository}"
        f"{path}, whose last applied commit is {short(last) if last else 'unknown'}: write another "
        "name, or if it is the same repository, take over its objects with `gitops-ds apply "
        "--adopt`"
    )


async def find(
    cluster: ClusterReader, namespace: str, key: OwnerKey, evidence: Evidence
) -> FoundOwner:
    """The owner's id of a repository, by its address if the states can't be read: what needs them
    reports that. Raises OwnerRefused for an invalid name and for that of another repository, and a
    retryable ClusterError.
    """
    try:
        return await _find(cluster, namespace, key, evidence)
    except errors.ClusterError as error:
        if error.retryable:
            raise
        return FoundOwner(key.new_id())


async def _find(
    cluster: ClusterReader, namespace: str, key: OwnerKey, evidence: Evidence
) -> FoundOwner:
    own_id = key.own_id
    own = await state_store.load(cluster, namespace, own_id) if own_id else DeployerState()
    if own.inventory and key.is_at(own) and key.is_of(own_id, own):
        return FoundOwner(own_id)
    states = await _states(cluster, namespace)
    here = {id: state for id, state in states.items() if id == own_id or key.is_of(id, state)}
    followed = await _followed(cluster, namespace, evidence) if here else frozenset()
    return choose(
        key,
        {
            id: KnownOwner(
                state,
                await _has_moved(key, id, state, evidence, id in followed),
                _is_abandoned(key, state, evidence, id in followed),
            )
            for id, state in here.items()
        },
    )


async def _states(cluster: ClusterReader, namespace: str) -> Mapping[str, DeployerState]:
    """The states of a namespace, without those whose content is invalid."""
    states = {}
    for id in await state_store.owners(cluster, namespace):
        try:
            states[id] = await state_store.load(cluster, namespace, id)
        except errors.ClusterError as error:
            if error.retryable:
                raise
    return states


async def _has_moved(
    key: OwnerKey, id: str, state: DeployerState, evidence: Evidence, seen: bool
) -> bool:
    """Whether the repository of a state is now at our address; `seen`: a service followed it, and
    for a command still does. With our name it may have another path now.
    """
    is_named = bool(key.hint) and id == key.own_id
    is_at, is_of = key.is_at(state), key.is_of(id, state)
    if not state.inventory or (is_at and is_of) or not (is_named or (is_of and not is_at)):
        return False
    if is_named and evidence.adopt:
        return True
    if _is_elsewhere(key, state, evidence):
        return False
    can_move = address.is_local(state.repository) or is_named
    can_move = can_move or seen if evidence.is_service else can_move and not seen
    return can_move and await _descends(state, evidence)


def _is_elsewhere(key: OwnerKey, state: DeployerState, evidence: Evidence) -> bool:
    path = key.path if state.path is None else state.path
    return evidence.elsewhere(state.repository, path)


def _is_abandoned(key: OwnerKey, state: DeployerState, evidence: Evidence, seen: bool) -> bool:
    """Whether an owner has no objects, and no known repository uses it."""
    in_use = _is_elsewhere(key, state, evidence) or (seen and not evidence.is_service)
    return not state.inventory and (evidence.adopt or not in_use)


async def _descends(state: DeployerState, evidence: Evidence) -> bool:
    return state.last_attempted is not None and await evidence.contains(state.last_attempted)


async def _followed(cluster: ClusterReader, namespace: str, evidence: Evidence) -> frozenset[str]:
    """The ids that a service followed; for a command those that one follows now."""
    statuses = await source_status_store.load_all(cluster, namespace, evidence.now)
    return frozenset(id for id, one in statuses.items() if evidence.is_service or one.active)


def of_live(key: OwnerKey, wanted: Iterable[Key], objects: Mapping[Key, Body]) -> str:
    """The owner's id by the live objects, without states: the label of a DaemonSet that was applied
    from this address. Pure.
    """
    for name in wanted:
        metadata = objects.get(name, {}).get("metadata") or {}
        repository = (metadata.get("annotations") or {}).get(names.REPOSITORY)
        owner = (metadata.get("labels") or {}).get(names.OWNER_LABEL)
        if repository and owner and address.same_place(str(repository), key.repository):
            return str(owner)
    return key.new_id()


def is_elsewhere(repository: str, here: str) -> bool:
    """Whether an address is a directory of this machine with a repository, other than that of
    `here`: a work tree whose remote is `here` is the same one.
    """
    if not address.is_local(repository):
        return False
    directory = Path(repository)
    if not any((directory / name).exists() for name in (".git", "HEAD")):
        return False
    other = open_repository.identity(address.parse(repository, allow_local=True))
    return not address.same_place(other, here)


def others_of(bodies: Iterable[Body], own: str) -> frozenset[str]:
    """The ids of other owners of objects."""
    return frozenset(map(object_owner.owner_of, bodies)) - {"", own}


async def describe_others(target: PlanTarget, ids: Set[str]) -> Mapping[str, str]:
    """A description of each owner, by its state."""
    return {id: await _described(target, id) for id in sorted(ids)}


async def _described(target: PlanTarget, id: str) -> str:
    try:
        state = await state_store.load(target.cluster, target.namespace, id)
    except errors.ClusterError:
        state = DeployerState()
    if not state.version:
        return f"gitops-ds of {id}, whose state is not in namespace {target.namespace}"
    path = f", path {state.path}" if state.path else ""
    cluster = f", cluster {state.cluster}" if state.cluster else ""
    words = f"gitops-ds of {state.repository}{path}{cluster} (owner {id})"
    if address.same_place(state.repository, target.repository):
        return f"{words}, which is this repository"
    last = state.last_attempted
    if last is None or target.contains is None:
        return words
    try:
        same = await target.contains(last)
    except errors.SourceError:
        return words
    return (
        f"{words}, which has the same history at another address"
        if same
        else f"{words}, another repository: its commit {short(last)} is not in this history"
    )


async def forget_unused(
    target: DeployTarget, ids: Set[str], inventory: Set[Key], now: float
) -> None:
    """Deletes the states and the statuses of owners whose objects are all ours now, unless a
    service follows them.
    """
    for id in sorted(ids):
        with contextlib.suppress(errors.ClusterError):  # the next apply tries again
            await _forget_unused(target, id, inventory, now)


async def _forget_unused(target: DeployTarget, id: str, inventory: Set[Key], now: float) -> None:
    cluster, namespace = target.cluster, target.namespace
    state = await state_store.load(cluster, namespace, id)
    status = (await source_status_store.load_all(cluster, namespace, now)).get(id)
    if not state.version or state.inventory - inventory or (status and status.active):
        return
    names = await state_store.config_maps(cluster, namespace, id)
    for name in (source_status_store.config_map_name(id), *names):
        await _delete(cluster, namespace, name)


async def _delete(cluster: Cluster, namespace: str, name: str) -> None:
    with contextlib.suppress(errors.NotFound):
        await cluster.delete(CONFIG_MAP, namespace, name)
