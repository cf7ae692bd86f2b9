"""The stored state of a deployer: one ConfigMap for each repository and cluster, written under its
version.

Compressed JSON by schemas/state.schema.json; data over half a MiB is split into further ConfigMaps,
named by their content and written before the first one refers to them, so that after a crash in
between the old state is complete.

Requests (suspend, hold, approve) are annotations of the same ConfigMap (`requests`), and Kubernetes
events name it (`service.git.git_deployer`).
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import Cluster, ClusterReader, Selection
from gitops_ds.core.deployer_state import DeployerState, Generation, KnownDrift
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, Body, CommitId, Digest, Key
from gitops_ds.core.required_in_git import AgentRecord
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.core.rollouts.template_cause import TemplateCause
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.core.values import replace
from gitops_ds.kube.client import namespaced_create
from gitops_ds.source.git import address

if TYPE_CHECKING:  # a controller reads states, and imports neither plan nor its data
    from gitops_ds.deploy.target import DeployTarget

CHUNK_BYTES = 512 * 1024
_KEY = "state.json.gz"
_PARTS = f"{names.DOMAIN}/parts"


# The name of a repository: a DNS label, in the name of its state. Excluded are the names of other
# ConfigMaps of the service: parts of states, the status of agents, the parameters of the admission
# policy. The same as `name` in schemas/gitops-ds.schema.json.
NAME = re.compile(
    "^(?!startup-taints$|status-|.*-[0-9a-f]{12}$)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
)
_ID = re.compile("[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?")  # also the value of a label


def identity(hint: str, repository: str, path: str, cluster: str) -> str:
    """The owner id of objects: the repository's own name with the cluster's, else a hash of
    repository, path and cluster. Raises OwnerRefused for a name that cannot be an id.
    """
    if hint:
        id = f"{hint}.{cluster}" if cluster else hint
        if not NAME.fullmatch(hint) or not _ID.fullmatch(id):
            raise errors.OwnerRefused(
                f"name: {id!r} in gitops-ds.yaml of {repository} cannot be the id of an owner: "
                "write lower-case letters, digits and dashes, with the name of the cluster at most "
                "63; startup-taints, status-… and names that end with 12 hexadecimal digits are "
                "reserved"
            )
        return id
    return hashlib.sha256("\0".join((repository, path, cluster)).encode()).hexdigest()[:12]


async def load(cluster: ClusterReader, namespace: str, id: str) -> DeployerState:
    """The stored state, or an empty one. Raises ClusterError, also for an unreadable state."""
    name = config_map_name(id)
    try:
        first = await cluster.get(CONFIG_MAP, namespace, name)
    except errors.NotFound:
        return DeployerState()
    try:
        rest = [await cluster.get(CONFIG_MAP, namespace, part) for part in _parts(first)]
    except errors.NotFound as error:
        raise _invalid(first, error) from error
    return _decoded((first, *rest))


def _decoded(bodies: Sequence[Body]) -> DeployerState:
    """The state in its ConfigMaps, the first one first. Raises ClusterError."""
    first = bodies[0]
    try:
        data = b"".join(base64.b64decode(body["binaryData"][_KEY]) for body in bodies)
        return _parse(
            orjson.loads(gzip.decompress(data)), str(first["metadata"]["resourceVersion"])
        )
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OSError,
        EOFError,
        zlib.error,
    ) as error:
        raise _invalid(first, error) from error


def _invalid(first: Body, error: Exception) -> errors.ClusterError:
    metadata = first["metadata"]
    return errors.ClusterError(
        f"ConfigMap {metadata.get('namespace')}/{metadata.get('name')} has no valid state "
        f"({error}): delete it to start with an empty state; no agent is touched"
    )


async def load_or_create(target: DeployTarget) -> DeployerState:
    """The stored state; a new one is written at once, because requests are its annotations."""
    stored = await load(target.cluster, target.namespace, target.owner)
    if stored.version:
        return stored
    new = replace(stored, repository=target.repository, path=target.path)
    return await save(target.cluster, target.namespace, target.owner, new)


def _parts(first: Body) -> list[str]:
    return [
        part
        for part in (first["metadata"].get("annotations") or {}).get(_PARTS, "").split(",")
        if part
    ]


async def save(
    cluster: Cluster, namespace: str, id: str, state: DeployerState, *, chunk: int = CHUNK_BYTES
) -> DeployerState:
    """Writes the state over the version that it was read at, and returns it at its new one.

    Raises Conflict or AlreadyExists after a concurrent write.
    """
    data = gzip.compress(orjson.dumps(show(state), option=orjson.OPT_SORT_KEYS), mtime=0)
    head, *rest = [data[at : at + chunk] for at in range(0, len(data), chunk)]
    parts = {
        f"{config_map_name(id)}-{hashlib.sha256(piece).hexdigest()[:12]}": piece for piece in rest
    }
    old = (
        _parts(await cluster.get(CONFIG_MAP, namespace, config_map_name(id)))
        if state.version and len(data) > chunk
        else []
    )
    for name, piece in parts.items():
        await cluster.apply(
            CONFIG_MAP,
            _config_map(namespace, name, piece, ()),
            manager=names.FIELD_MANAGER,
            force=True,
        )
    body = _config_map(namespace, config_map_name(id), head, parts)
    if state.version:
        # A patch, because the object has annotations of other writers: requests, for example.
        patch = {**body, "metadata": {**body["metadata"], "resourceVersion": state.version}}
        written = await cluster.patch(CONFIG_MAP, namespace, config_map_name(id), patch)
    else:
        written = await namespaced_create.create(cluster, CONFIG_MAP, body)
    for name in set(old) - parts.keys():
        with contextlib.suppress(errors.NotFound):
            await cluster.delete(CONFIG_MAP, namespace, name)
    return replace(state, version=str(written["metadata"]["resourceVersion"]))


def config_map_name(id: str) -> str:
    """The name of the ConfigMap with the state of an owner."""
    return f"gitops-ds-{id}"


def _config_map(namespace: str, name: str, piece: bytes, parts: Iterable[str]) -> dict[str, Any]:
    metadata = {
        "namespace": namespace,
        "name": name,
        "labels": {"app.kubernetes.io/managed-by": "gitops-ds"},
        "annotations": {_PARTS: ",".join(parts)},
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "binaryData": {_KEY: base64.b64encode(piece).decode()},
    }


def show(state: DeployerState) -> dict[str, Any]:
    """The state in the form of schemas/state.schema.json."""
    return {
        "version": "v1",
        "repository": state.repository,
        **({} if state.path is None else {"path": state.path}),
        "cluster": state.cluster,
        "lastGoodCommit": state.last_good,
        "lastAttemptedCommit": state.last_attempted,
        "heldCommits": [],  # required by the schema; holds are annotations
        "inventory": [list(_words(key)) for key in sorted(state.inventory)],
        "agents": [[*_words(key), agent] for key, agent in sorted(state.agents.items())],
        "digests": [[*_words(key), digest] for key, digest in sorted(state.digests.items())],
        "revisions": {
            f"{key.namespace}/{key.name}": {
                str(number): commit for number, commit in sorted(commits.items())
            }
            for key, commits in sorted(state.revisions.items())
        },
        "drift": [
            [*_words(key), left.choice.value, left.since, left.words]
            for key, left in sorted(state.drift.items())
        ],
        "approved": [list(_words(key)) for key in sorted(state.approved)],
        "generations": [
            [*_words(key), one.generation, one.commit]
            for key, one in sorted(state.generations.items())
        ],
        "waiting": [list(_words(key)) for key in sorted(state.waiting)],
        "kept": [list(_words(key)) for key in sorted(state.kept)],
        "templates": {
            f"{key.namespace}/{key.name}": msgspec.to_builtins(history)
            for key, history in sorted(state.templates.items())
        },
        "causes": {
            f"{key.namespace}/{key.name}": msgspec.to_builtins(cause)
            for key, cause in sorted(state.causes.items())
        },
        "commits": {
            f"{key.namespace}/{key.name}": dict(sorted(commits.items()))
            for key, commits in sorted(state.commits.items())
        },
        **({} if state.required is None else {"required": _required(state.required)}),
    }


def _required(required: Mapping[Key, AgentRecord]) -> dict[str, Any]:
    return {
        f"{key.namespace}/{key.name}": msgspec.to_builtins(record)
        for key, record in sorted(required.items())
    }


def _words(key: Key) -> tuple[str, str, str, str]:
    return key.group, key.kind, key.namespace, key.name


def _parse(stored: Mapping[str, Any], version: str) -> DeployerState:
    if stored["version"] != "v1":
        raise ValueError(f"version {stored['version']!r} is not supported")
    revisions = {}
    for name, commits in stored["revisions"].items():
        revisions[_daemonset(name)] = {int(n): CommitId(commit) for n, commit in commits.items()}
    return DeployerState(
        repository=stored["repository"],
        path=stored.get("path"),
        cluster=stored["cluster"],
        last_good=stored["lastGoodCommit"],
        last_attempted=stored["lastAttemptedCommit"],
        inventory=frozenset(Key(*words) for words in stored["inventory"]),
        agents={Key(*words): agent for *words, agent in stored.get("agents", ())},
        digests={Key(*words): Digest(digest) for *words, digest in stored["digests"]},
        revisions=revisions,
        drift={
            Key(*words): KnownDrift(DriftPolicy(choice), since, detail)
            for *words, choice, since, detail in stored.get("drift", ())
        },
        approved=frozenset(Key(*words) for words in stored.get("approved", ())),
        generations={
            Key(*words): Generation(number, commit)
            for *words, number, commit in stored.get("generations", ())
        },
        waiting=frozenset(Key(*words) for words in stored.get("waiting", ())),
        kept=frozenset(Key(*words) for words in stored.get("kept", ())),
        templates={
            _daemonset(name): msgspec.convert(history, TemplateHistory)
            for name, history in stored.get("templates", {}).items()
        },
        causes={
            _daemonset(name): msgspec.convert(cause, TemplateCause)
            for name, cause in stored.get("causes", {}).items()
        },
        commits={
            _daemonset(name): {one: CommitId(commit) for one, commit in commits.items()}
            for name, commits in stored.get("commits", {}).items()
        },
        required=None
        if "required" not in stored
        else {
            _daemonset(name): msgspec.convert(record, AgentRecord)
            for name, record in stored["required"].items()
        },
        version=version,
    )


def _daemonset(text: str) -> Key:
    namespace, _, name = text.partition("/")
    return Key(DAEMONSET.group, DAEMONSET.kind, namespace, name)


async def config_maps(cluster: ClusterReader, namespace: str, id: str) -> list[str]:
    """The ConfigMaps with the state of an owner, the first one first; empty without a state."""
    try:
        first = await cluster.get(CONFIG_MAP, namespace, config_map_name(id))
    except errors.NotFound:
        return []
    return [config_map_name(id), *_parts(first)]


async def load_all(cluster: ClusterReader, namespace: str) -> Mapping[str, DeployerState]:
    """All states of a namespace, by the owner's id. Raises ClusterError."""
    bodies = await _listed(cluster, namespace)
    states = {}
    for id in _ids(bodies):
        first = bodies[config_map_name(id)]
        parts = _parts(first)
        if bodies.keys() >= set(parts):
            states[id] = _decoded((first, *(bodies[part] for part in parts)))
        else:  # written since the list began
            states[id] = await load(cluster, namespace, id)
    return states


async def owners(cluster: ClusterReader, namespace: str, repository: str = "") -> list[str]:
    """The ids of the owners with a state in the namespace, or of those of a repository. Raises
    ClusterError.
    """
    ids = _ids(await _listed(cluster, namespace))
    if not repository:
        return ids
    states = {id: await load(cluster, namespace, id) for id in ids}
    return [id for id in ids if address.same_place(states[id].repository, repository)]


async def _listed(cluster: ClusterReader, namespace: str) -> Mapping[str, Body]:
    """The ConfigMaps of all states, by name."""
    listing = await cluster.list(
        CONFIG_MAP, Selection(namespace, labels="app.kubernetes.io/managed-by=gitops-ds")
    )
    bodies = (body for body in listing.items if _KEY in (body.get("binaryData") or {}))
    return {str(body["metadata"]["name"]): body for body in bodies}


def _ids(bodies: Mapping[str, Body]) -> list[str]:
    parts = {part for body in bodies.values() for part in _parts(body)}
    prefix = config_map_name("")
    firsts = (name for name in bodies if name.startswith(prefix) and name not in parts)
    return sorted(name.removeprefix(prefix) for name in firsts)
